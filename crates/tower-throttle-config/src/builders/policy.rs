//! Tables `[[policy]]`.

use std::{sync::Arc, time::Duration};

use super::{
    addresses::Addresses,
    blame, conditions,
    keys::{self, AnyKey},
    reading::Reading,
    settler,
    tiers::{self, Amount},
};
use crate::{field::Field, matching::Matcher, readers::CostBy};
use tower_throttle::{
    Algorithm, FixedWindow, OnMissingKey, OnStoreFailure, Percent, Policy, Quota, RateLimitLayer,
    settle::Settler,
};

/// A policy of the file. `None` if it has a mistake.
pub(super) struct FilePolicy<'a> {
    pub(super) name: &'a str,
    pub(super) field: Field<'a>,
    pub(super) policies: Option<Policies>,
}

/// What a policy of the file is in code.
pub(super) struct Policies {
    pub(super) of_layers: Policy,
    /// Without the key and the settler: callers of a limiter pass the key and settle by themselves.
    pub(super) of_limiters: Policy,
}

/// Reads all policies.
pub(super) fn read_all<'a>(
    reading: &mut Reading<'_>,
    file: &Field<'a>,
    addresses: &Addresses,
) -> Vec<FilePolicy<'a>> {
    let tables = file.get("policy").map(|field| field.items());
    let mut policies = Vec::new();
    for field in tables.unwrap_or_default() {
        let name = field.get("name");
        policies.push(FilePolicy {
            name: name.and_then(|name| name.text()).unwrap_or_default(),
            policies: read(reading, &field, addresses),
            field,
        });
    }
    policies
}

/// Returns the policies of a layer or limiter, in the order in which it names them: all, if it
/// names none.
pub(super) fn chosen_by<'a, 'f>(
    table: &Field<'_>,
    policies: &'a [FilePolicy<'f>],
) -> Vec<&'a FilePolicy<'f>> {
    let Some(names) = table.get("policies") else {
        return policies.iter().collect();
    };
    let names = names.items();
    let names = names.iter().filter_map(Field::text);
    names
        .filter_map(|name| policies.iter().find(|policy| policy.name == name))
        .collect()
}

fn read(reading: &mut Reading<'_>, table: &Field<'_>, addresses: &Addresses) -> Option<Policies> {
    let before = reading.problems.len();
    let amount = table
        .get("quota")
        .and_then(|field| tiers::read(reading, &field));
    let settings = Settings::read(reading, table, addresses);
    let (name, amount) = (table.get("name")?.text()?, amount?);
    for (field, quota) in amount.quotas() {
        let policy = settings.apply_for_layer(Policy::new(name, *quota));
        let alone = RateLimitLayer::builder().policy(policy);
        if let Err(error) = alone.policy(other_than(name)).build() {
            // A table of tiers is wrong at the tier.
            let wrong = match blame::fields(&error) {
                ["quota", ..] => Some(field.clone()),
                names => blame::first_of(table, names),
            };
            let wrong = wrong.as_ref().unwrap_or(table);
            reading.report_error(wrong, &error);
        }
    }
    if reading.problems.len() > before {
        return None;
    }
    let base = amount.base();
    let policy = Policy::new(name, base);
    let policy = match amount {
        Amount::One(..) => policy,
        Amount::Tiers(tiers) => policy.quota_by(tiers.into_choice(name)),
    };
    Some(Policies {
        of_layers: settings.apply_for_layer(policy.clone()),
        of_limiters: settings.apply_for_limiter(policy, &base),
    })
}

/// Returns a policy that denies: one that strikes on denials has no effect alone.
fn other_than(name: &str) -> Policy {
    let name = if name == "other" { "another" } else { "other" };
    Policy::new(name, FixedWindow::per_second(1))
}

/// The settings of a policy, without its quota.
#[derive(Default)]
struct Settings {
    key: Option<AnyKey>,
    on_missing_key: Option<OnMissingKey>,
    shared: bool,
    when: Option<Matcher>,
    cost: Option<u64>,
    cost_by: Option<Arc<CostBy>>,
    max_debt: Option<u64>,
    mode: Option<Mode>,
    on_store_failure: Option<OnStoreFailure>,
    lease: bool,
    settle_by: Option<Arc<dyn Settler>>,
    hold_for: Option<Duration>,
    strike_on_denial: bool,
}

#[derive(Clone, Copy)]
enum Mode {
    Shadow,
    EnforceFor(Percent),
}

impl Settings {
    fn read(reading: &mut Reading<'_>, table: &Field<'_>, addresses: &Addresses) -> Self {
        let shared = table.is_set("shared");
        let key = match table.get("key") {
            Some(field) => keys::read(reading, &field, addresses),
            // It is the default, with the prefix that the file sets.
            None => (!shared).then(|| Arc::new(addresses.peer) as AnyKey),
        };
        let when = table.get("when");
        let cost = table.get("cost");
        let cost_by = cost.as_ref().filter(|cost| cost.table().is_some());
        let cost_by = cost_by.and_then(|cost| cost.get("by"));
        let registered = &reading.readers.cost;
        let settle_by = table.get("settle_by");
        Self {
            cost_by: reading.named(cost_by.as_ref(), registered, "cost").cloned(),
            key,
            on_missing_key: word(table, "on_missing_key").map(|word| match word {
                "skip" => OnMissingKey::Skip,
                "share" => OnMissingKey::Share,
                _ => OnMissingKey::Deny,
            }),
            shared,
            when: when.map(|field| conditions::read(reading, &field)),
            cost: cost.and_then(|field| field.whole()),
            max_debt: table.get("max_debt").and_then(|field| field.whole()),
            mode: table.get("mode").and_then(|field| mode(&field)),
            on_store_failure: on_store_failure(reading, table),
            lease: table.is_set("lease"),
            settle_by: settle_by.and_then(|field| settler::read(reading, &field)),
            hold_for: table.get("hold_for").and_then(|field| field.duration()),
            strike_on_denial: table.is_set("strike_on_denial"),
        }
    }

    /// Applies what layers and limiters have in common.
    fn apply(&self, mut policy: Policy) -> Policy {
        if let Some(units) = self.cost {
            policy = policy.cost(units);
        }
        if let Some(cost) = &self.cost_by {
            let cost = Arc::clone(cost);
            policy = policy.cost_by(move |head| cost(head));
        }
        if let Some(units) = self.max_debt {
            policy = policy.max_debt(units);
        }
        if self.shared {
            policy = policy.shared();
        }
        if let Some(when) = self.when.clone() {
            policy = policy.when(move |head| when.applies(head));
        }
        match self.mode {
            None => {}
            Some(Mode::Shadow) => policy = policy.shadow(),
            Some(Mode::EnforceFor(share)) => policy = policy.enforce_for(share),
        }
        if let Some(choice) = self.on_store_failure {
            policy = policy.on_store_failure(choice);
        }
        if self.lease {
            policy = policy.lease();
        }
        if self.strike_on_denial {
            policy = policy.strike_on_denial();
        }
        policy
    }

    fn apply_for_layer(&self, policy: Policy) -> Policy {
        let mut policy = self.apply(policy);
        if let Some(key) = self.key.clone() {
            policy = policy.key(key);
        }
        if let Some(choice) = self.on_missing_key {
            policy = policy.on_missing_key(choice);
        }
        if let Some(settler) = self.settle_by.clone() {
            policy = policy.settle_by(settler);
        }
        match self.hold_for {
            Some(time) => policy.hold_for(time),
            None => policy,
        }
    }

    /// What requests of a layer hold counts in the same buckets, so the limiter has to know of it.
    fn apply_for_limiter(&self, policy: Policy, quota: &Quota) -> Policy {
        let policy = self.apply(policy);
        let settles = self.settle_by.is_some();
        let by_default = settles.then_some(Policy::DEFAULT_HOLD_FOR);
        match self.hold_for.or(by_default) {
            // Its settlements are strikes, of which none are held.
            Some(_) if settles && quota.algorithm() == Algorithm::Penalty => policy,
            Some(time) => policy.hold_for(time),
            None => policy,
        }
    }
}

fn word(table: &Field<'_>, name: &str) -> Option<&'static str> {
    table.get(name)?.word().map(|(word, _)| word)
}

fn mode(field: &Field<'_>) -> Option<Mode> {
    if let Some((word, _)) = field.word() {
        return (word == "shadow").then_some(Mode::Shadow);
    }
    let percent = field.get("enforce_for")?.whole()?;
    let percent = u8::try_from(percent).unwrap_or(u8::MAX);
    Some(Mode::EnforceFor(Percent::of_keys(percent)))
}

/// Reads the field `on_store_failure` of a policy, layer or limiter.
pub(super) fn on_store_failure(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
) -> Option<OnStoreFailure> {
    let field = table.get("on_store_failure")?;
    let choice = field.text()?.parse();
    reading.keep(&field, choice)
}
