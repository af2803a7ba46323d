//! Tables `[layer.NAME]` and `[limiter.NAME]`.

use std::collections::{BTreeMap, HashSet};

use http::{HeaderMap, StatusCode};

use super::{
    blame, conditions,
    policy::{FilePolicy, chosen_by},
    reading::{Reading, field, reader, set, switch},
};
use crate::{DEFAULT_LAYER, place::FilePlace, tables};
use tower_throttle::{
    ConfigError, Denied, GrpcDenials, HeaderFormat, Limiter, LimiterBuilder, Lists, OnStoreFailure,
    Policy, RateLimitLayer, RateLimitLayerBuilder, RequestHead, TokenBucket,
};

pub(crate) type Layers = BTreeMap<String, RateLimitLayerBuilder>;
pub(crate) type Limiters = BTreeMap<String, LimiterBuilder>;

/// Applies the settings that layers and limiters share, and builds. `None` if there is a mistake.
macro_rules! build {
    ($reading:ident, $all:ident, $at:ident, $name:ident, $table:ident, $of:ident, $builder:ident) => {{
        let ((policies, lists), table, mut builder) = ($all, $table, $builder);
        let chosen = chosen_by(table.policies.as_deref(), policies);
        let names: Vec<_> = chosen.iter().map(|policy| policy.name()).collect();
        let chosen = chosen.into_iter();
        let chosen = chosen.map(|chosen| Some(chosen.policies.as_ref()?.$of.clone()));
        let chosen: Option<Vec<Policy>> = chosen.collect();
        let is_complete = chosen.is_some();
        // Without a policy that has mistakes, which are reported, the others could seem wrong. One that
        // takes any setting stands in for them, so that mistakes of the table are found, too.
        for policy in chosen.unwrap_or_else(|| vec![Policy::from(TokenBucket::per_second(1))]) {
            builder = builder.policy(policy);
        }
        set!(
            builder,
            lists = lists
                .filter(|_| table.lists != Some(false))
                .map(|lists| lists.for_policies(names.iter().filter(|_| is_complete))),
            on_store_failure = table.on_store_failure.map(OnStoreFailure::from),
            max_waiting = table.max_waiting,
            observe = reader!($reading, $at, table, observe),
        );
        switch!(builder, table, shadow_all);
        builder = builder.name(table.name.as_ref().map_or(&**$name, |name| &name.0));
        let built = builder.clone().build().map(drop);
        let is_built = keep($reading, policies, &$at, &built);
        (is_built && is_complete).then(|| ($name.clone(), builder))
    }};
}

/// Reads all layers and limiters. Without any, there is one layer with all policies.
pub(super) fn read_all(
    reading: &mut Reading<'_>,
    policies: &[FilePolicy<'_>],
    lists: Option<&Lists>,
) -> (Layers, Limiters) {
    let (mut layers, mut limiters) = (Layers::new(), Limiters::new());
    let (file, all) = (reading.file(), (policies, lists));
    let default = BTreeMap::from([(DEFAULT_LAYER.to_owned(), tables::Layer::default())]);
    let default = file.limiter.is_none().then_some(&default);
    for (name, table) in file.layer.as_ref().or(default).into_iter().flatten() {
        let at = FilePlace::root().to("layer").to(name);
        let builder = with_layer_settings(reading, RateLimitLayer::builder(), &at, table);
        let common = &table.common;
        layers.extend(build!(reading, all, at, name, common, of_layers, builder));
    }
    for (name, table) in file.limiter.iter().flatten() {
        let (at, builder) = (FilePlace::root().to("limiter").to(name), Limiter::builder());
        limiters.extend(build!(reading, all, at, name, table, of_limiters, builder));
    }
    if file.layer.is_some() || file.limiter.is_some() {
        report_unused(reading, policies);
    }
    (layers, limiters)
}

/// Reports each policy that no layer and no limiter names: it would limit nothing. Also reports
/// each policy that settles by responses and that only limiters name, as they have no responses.
fn report_unused(reading: &mut Reading<'_>, policies: &[FilePolicy<'_>]) {
    let file = reading.file();
    let layers = file.layer.iter().flatten().map(|(_, table)| &table.common);
    let limiters = file.limiter.iter().flatten().map(|(_, table)| table);
    let choose = |table: &tables::Limiter| chosen_by(table.policies.as_deref(), policies);
    let in_layers: HashSet<_> = layers.flat_map(choose).map(FilePolicy::name).collect();
    let in_limiters: HashSet<_> = limiters.flat_map(choose).map(FilePolicy::name).collect();
    let is_elsewhere = |policy: &&FilePolicy<'_>| !in_layers.contains(policy.name());
    for policy in policies.iter().filter(is_elsewhere) {
        if !in_limiters.contains(policy.name()) {
            let message = "no layer and no limiter has this policy; name it in their `policies`, or remove it";
            reading.report(&policy.at.to("name"), "unused-policy", message);
        } else if policy.table.settle_by.is_some() {
            let message = "`settle_by` reads responses, and only limiters have this policy; name it in the `policies` of a layer, or remove `settle_by`";
            reading.report(&policy.at.to("settle_by"), "no-request-to-read", message);
        }
    }
}

/// Returns whether something was built. Reports why it was not: at the field of a policy that cannot be
/// in it, or at its own.
fn keep(
    reading: &mut Reading<'_>,
    policies: &[FilePolicy<'_>],
    at: &FilePlace,
    built: &Result<(), ConfigError>,
) -> bool {
    if let Err(error) = built {
        let mut policies = policies.iter();
        let policy = policies.find(|policy| error.policy() == Some(policy.name()));
        let at = policy.map_or(at, |policy| &policy.at);
        reading.report_in(at, blame::fields(error), error);
    }
    built.is_ok()
}

/// Applies the settings that only layers have.
fn with_layer_settings(
    reading: &mut Reading<'_>,
    mut builder: RateLimitLayerBuilder,
    at: &FilePlace,
    table: &tables::Layer,
) -> RateLimitLayerBuilder {
    let when = table.when.as_ref();
    let when = when.map(|when| conditions::read(reading, &at.to("when"), when));
    let secret = reading.expanded(field!(at, table, partition_key_secret));
    let headers_when = reader!(reading, at, table, headers_when);
    let on_denied = reader!(reading, at, table, on_denied);
    let name_offenders = reader!(reading, at, table, name_offenders);
    set!(
        builder,
        headers = table.headers.map(HeaderFormat::from),
        grpc_denials = table.grpc_denials.map(GrpcDenials::from),
        when = when.map(|when| move |head: &RequestHead<'_>| when.applies(head)),
        partition_key_secret = secret.as_ref().map(|secret| secret.as_bytes()),
        retry_after_jitter = table.retry_after_jitter.map(|time| time.0),
        wait_up_to = table.wait_up_to.map(|time| time.0),
        headers_when = headers_when
            .map(|wanted| move |status: StatusCode, headers: &HeaderMap| wanted(status, headers)),
        on_denied = on_denied.map(|respond| move |denied: Denied<'_>| respond(denied)),
        name_offenders = name_offenders.map(|name_of| move |head: &RequestHead<'_>| name_of(head)),
    );
    switch!(builder, table, decision_in_extensions, shadow_with_headers);
    builder
}
