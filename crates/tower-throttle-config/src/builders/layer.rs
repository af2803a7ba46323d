//! Tables `[layer.NAME]` and `[limiter.NAME]`.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{
    blame, conditions,
    policy::{FilePolicy, Policies, chosen_by, on_store_failure},
    reading::Reading,
};
use crate::{DEFAULT_LAYER, code::Code, field::Field};
use tower_throttle::{
    ConfigError, GrpcDenials, HeaderFormat, Limiter, LimiterBuilder, Lists, Policy, RateLimitLayer,
    RateLimitLayerBuilder, TokenBucket,
};

pub(crate) type Layers = BTreeMap<String, RateLimitLayerBuilder>;
pub(crate) type Limiters = BTreeMap<String, LimiterBuilder>;

/// Reads all layers and limiters. Without any, there is one layer with all policies.
pub(super) fn read_all(
    reading: &mut Reading<'_>,
    file: &Field<'_>,
    policies: &[FilePolicy<'_>],
    lists: Option<&Lists>,
) -> (Layers, Limiters) {
    let (mut layers, mut limiters) = (Layers::new(), Limiters::new());
    let all = All { policies, lists };
    for (name, table) in file.get("layer").iter().flat_map(Field::entries) {
        layers.extend(
            all.layer(reading, name, &table)
                .map(|layer| (name.to_owned(), layer)),
        );
    }
    for (name, table) in file.get("limiter").iter().flat_map(Field::entries) {
        limiters.extend(
            all.limiter(reading, name, &table)
                .map(|limiter| (name.to_owned(), limiter)),
        );
    }
    if file.get("layer").is_none() && file.get("limiter").is_none() {
        let table = file.empty_entry("layer", DEFAULT_LAYER);
        let layer = table.and_then(|table| all.layer(reading, DEFAULT_LAYER, &table));
        layers.extend(layer.map(|layer| (DEFAULT_LAYER.to_owned(), layer)));
    } else {
        report_unused(reading, file, policies);
    }
    (layers, limiters)
}

/// Reports each policy that no layer and no limiter names: it would limit nothing.
fn report_unused(reading: &mut Reading<'_>, file: &Field<'_>, policies: &[FilePolicy<'_>]) {
    let mut named = HashSet::new();
    for kind in ["layer", "limiter"] {
        for (_, table) in file.get(kind).iter().flat_map(Field::entries) {
            let Some(names) = table.get("policies") else {
                return;
            };
            named.extend(names.items().iter().filter_map(Field::text));
        }
    }
    for policy in policies {
        if !named.contains(policy.name) {
            let message = "no layer and no limiter has this policy; name it in their `policies`, or remove it";
            let field = policy.field.get("name");
            let field = field.as_ref().unwrap_or(&policy.field);
            let problem = field.problem(Code::UnusedPolicy, message.to_owned());
            reading.problems.push(problem);
        }
    }
}

/// What layers and limiters choose from.
struct All<'a> {
    policies: &'a [FilePolicy<'a>],
    lists: Option<&'a Lists>,
}

/// Applies the settings that layers and limiters share.
macro_rules! with_common_settings {
    ($builder:expr, $all:expr, $reading:expr, $table:expr, $name:expr, $policies:expr) => {{
        let mut builder = $builder;
        for policy in $policies {
            builder = builder.policy(policy);
        }
        let has_lists = $table.get("lists").and_then(|field| field.flag());
        if let (Some(lists), true) = ($all.lists, has_lists.unwrap_or(true)) {
            builder = builder.lists(lists.clone());
        }
        if let Some(choice) = on_store_failure($reading, $table) {
            builder = builder.on_store_failure(choice);
        }
        if $table.is_set("shadow_all") {
            builder = builder.shadow_all();
        }
        if let Some(most) = $table.get("max_waiting").and_then(|field| field.whole()) {
            builder = builder.max_waiting(usize::try_from(most).unwrap_or(usize::MAX));
        }
        let registered = &$reading.readers.observe;
        if let Some(observer) =
            $reading.named($table.get("observe").as_ref(), registered, "observe")
        {
            builder = builder.observe(Arc::clone(observer));
        }
        let name = $table.get("name").and_then(|field| field.text());
        builder.name(name.unwrap_or($name))
    }};
}

impl<'a> All<'a> {
    fn policy(&self, name: &str) -> Option<&'a FilePolicy<'a>> {
        self.policies.iter().find(|policy| policy.name == name)
    }

    fn layer(
        &self,
        reading: &mut Reading<'_>,
        name: &str,
        table: &Field<'_>,
    ) -> Option<RateLimitLayerBuilder> {
        let chosen = Chosen::new(&chosen_by(table, self.policies), |policies| {
            &policies.of_layers
        });
        let builder = RateLimitLayer::builder();
        let builder =
            with_common_settings!(builder, self, reading, table, name, chosen.policies.clone());
        let builder = with_layer_settings(reading, builder, table);
        let built = builder.clone().build();
        let is_built = self.keep(reading, table, built).is_some();
        (is_built && chosen.is_complete).then_some(builder)
    }

    fn limiter(
        &self,
        reading: &mut Reading<'_>,
        name: &str,
        table: &Field<'_>,
    ) -> Option<LimiterBuilder> {
        let chosen = Chosen::new(&chosen_by(table, self.policies), |policies| {
            &policies.of_limiters
        });
        let builder = Limiter::builder();
        let builder =
            with_common_settings!(builder, self, reading, table, name, chosen.policies.clone());
        let built = builder.clone().build();
        let is_built = self.keep(reading, table, built).is_some();
        (is_built && chosen.is_complete).then_some(builder)
    }

    /// Returns what was built, or reports why it was not: at the field of a policy that cannot be in
    /// it, or at its own.
    fn keep<T>(
        &self,
        reading: &mut Reading<'_>,
        table: &Field<'_>,
        built: Result<T, ConfigError>,
    ) -> Option<T> {
        let error = match built {
            Ok(built) => return Some(built),
            Err(error) => error,
        };
        let of_policy = error.policy().and_then(|name| self.policy(name));
        let table = of_policy.map_or(table, |policy| &policy.field);
        let field = blame::first_of(table, blame::fields(&error));
        reading.report_error(field.as_ref().unwrap_or(table), &error);
        None
    }
}

/// The policies of a layer or limiter.
struct Chosen {
    policies: Vec<Policy>,
    /// Whether none of them has a mistake.
    is_complete: bool,
}

impl Chosen {
    /// Without a policy that has mistakes, which are reported, the others could seem wrong. Then
    /// they give way to one that takes any setting, so that mistakes of the layer are found, too.
    fn new(chosen: &[&FilePolicy<'_>], policy: impl Fn(&Policies) -> &Policy) -> Self {
        let policies = chosen.iter().map(|chosen| chosen.policies.as_ref());
        let policies = policies.map(|policies| policies.map(|policies| policy(policies).clone()));
        let all: Option<Vec<Policy>> = policies.collect();
        Self {
            is_complete: all.is_some(),
            policies: all.unwrap_or_else(|| vec![Policy::from(TokenBucket::per_second(1))]),
        }
    }
}

/// Applies the settings that only layers have.
fn with_layer_settings(
    reading: &mut Reading<'_>,
    mut builder: RateLimitLayerBuilder,
    table: &Field<'_>,
) -> RateLimitLayerBuilder {
    builder = builder
        .headers(headers(table))
        .grpc_denials(grpc_denials(table));
    if let Some(field) = table.get("when") {
        let when = conditions::read(reading, &field);
        builder = builder.when(move |head| when.applies(head));
    }
    let secret = table.get("partition_key_secret");
    let secret = secret.and_then(|field| reading.problems.keep(field.expanded()));
    if let Some(secret) = secret {
        builder = builder.partition_key_secret(secret.as_bytes());
    }
    let time = |name: &str| table.get(name)?.duration();
    if let Some(most) = time("retry_after_jitter") {
        builder = builder.retry_after_jitter(most);
    }
    if let Some(most) = time("wait_up_to") {
        builder = builder.wait_up_to(most);
    }
    if table.is_set("decision_in_extensions") {
        builder = builder.decision_in_extensions();
    }
    if table.is_set("shadow_with_headers") {
        builder = builder.shadow_with_headers();
    }
    with_layer_readers(reading, builder, table)
}

/// Applies the readers that only layers have.
fn with_layer_readers(
    reading: &mut Reading<'_>,
    mut builder: RateLimitLayerBuilder,
    table: &Field<'_>,
) -> RateLimitLayerBuilder {
    let readers = reading.readers;
    let field = table.get("headers_when");
    if let Some(wanted) = reading.named(field.as_ref(), &readers.headers_when, "headers_when") {
        let wanted = Arc::clone(wanted);
        builder = builder.headers_when(move |status, headers| wanted(status, headers));
    }
    let field = table.get("on_denied");
    if let Some(respond) = reading.named(field.as_ref(), &readers.on_denied, "on_denied") {
        let respond = Arc::clone(respond);
        builder = builder.on_denied(move |denied| respond(denied));
    }
    let field = table.get("name_offenders");
    if let Some(name_of) = reading.named(field.as_ref(), &readers.name_offenders, "name_offenders")
    {
        let name_of = Arc::clone(name_of);
        builder = builder.name_offenders(move |head| name_of(head));
    }
    builder
}

fn headers(table: &Field<'_>) -> HeaderFormat {
    let field = table.get("headers");
    match field.as_ref().and_then(Field::word) {
        Some(("draft7", _)) => HeaderFormat::Draft7,
        Some(("draft6", _)) => HeaderFormat::Draft6,
        Some(("x_rate_limit_epoch", _)) => HeaderFormat::XRateLimitEpoch,
        Some(("x_rate_limit_delta", _)) => HeaderFormat::XRateLimitDelta,
        Some(("none", _)) => HeaderFormat::None,
        _ => HeaderFormat::Draft10,
    }
}

fn grpc_denials(table: &Field<'_>) -> GrpcDenials {
    let field = table.get("grpc_denials");
    match field.as_ref().and_then(Field::word) {
        Some(("auto_with_web", _)) => GrpcDenials::AutoWithWeb,
        Some(("always", _)) => GrpcDenials::Always,
        Some(("never", _)) => GrpcDenials::Never,
        _ => GrpcDenials::Auto,
    }
}
