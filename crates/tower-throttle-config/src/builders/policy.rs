//! Tables `[[policy]]`.

use std::sync::Arc;

use super::{
    addresses::Addresses,
    blame, conditions,
    keys::{self, AnyKey},
    reading::{Reading, set, switch},
    settler, tiers,
};
use crate::{
    place::FilePlace,
    tables::{Cost, Mode, ModeWord, Policy as Table, PolicyName, StoreFailure},
};
use tower_throttle::{
    Algorithm, FixedWindow, OnMissingKey, OnStoreFailure, Policy, RateLimitLayer, RequestHead,
};

/// A policy of the file. `policies` is `None` if it has a mistake.
pub(super) struct FilePolicy<'a> {
    pub(super) at: FilePlace,
    pub(super) table: &'a Table,
    pub(super) policies: Option<Policies>,
}

impl FilePolicy<'_> {
    pub(super) fn name(&self) -> &str {
        &self.table.name.0
    }
}

/// What a policy of the file is in code.
pub(super) struct Policies {
    pub(super) of_layers: Policy,
    /// Without the key and the settler: callers of a limiter pass the key and settle by themselves.
    pub(super) of_limiters: Policy,
}

/// Reads all policies.
pub(super) fn read_all<'a>(
    reading: &mut Reading<'a>,
    addresses: &Addresses,
) -> Vec<FilePolicy<'a>> {
    let tables = reading.file().policy.iter().enumerate();
    let read = |(index, table)| {
        let at = FilePlace::root().to("policy").to(&index);
        let policies = read(reading, addresses, &at, table);
        FilePolicy {
            at,
            table,
            policies,
        }
    };
    tables.map(read).collect()
}

/// Returns the policies of a layer or limiter, in the order in which it names them: all, if it
/// names none.
pub(super) fn chosen_by<'p, 'a>(
    names: Option<&[PolicyName]>,
    policies: &'p [FilePolicy<'a>],
) -> Vec<&'p FilePolicy<'a>> {
    let Some(names) = names else {
        return policies.iter().collect();
    };
    let find = |name: &PolicyName| policies.iter().find(|policy| policy.name() == name.0);
    names.iter().filter_map(find).collect()
}

fn read(
    reading: &mut Reading<'_>,
    addresses: &Addresses,
    at: &FilePlace,
    table: &Table,
) -> Option<Policies> {
    let before = reading.problems.len();
    let amount = tiers::read(reading, &at.to("quota"), &table.quota);
    let key = match &table.key {
        Some(key) => keys::read(reading, addresses, &at.to("key"), key),
        None if table.shared == Some(true) => None,
        // It is the default, with the prefix that the file sets.
        None => Some(Arc::new(addresses.peer()) as AnyKey),
    };
    let when = table.when.as_ref();
    let when = when.map(|when| conditions::read(reading, &at.to("when"), when));
    let (units, cost_by) = match &table.cost {
        Some(Cost::Units(units)) => (Some(*units), None),
        Some(Cost::Each(each)) => (None, Some(&each.by.0)),
        None => (None, None),
    };
    let cost_at = at.to("cost").to("by");
    let cost_by = cost_by.and_then(|by| reading.find(&cost_at, &reading.readers.cost, "cost", by));
    let settle_by = table.settle_by.as_ref();
    let settle_by = settle_by.and_then(|by| settler::read(reading, &at.to("settle_by"), by));
    let (name, amount, settles) = (&*table.name.0, amount?, settle_by.is_some());

    let mut policy = Policy::new(name, amount.base);
    set!(
        policy,
        cost = units,
        cost_by = cost_by.map(|cost| move |head: &RequestHead<'_>| cost(head)),
        max_debt = table.max_debt,
        when = when.map(|when| move |head: &RequestHead<'_>| when.applies(head)),
        on_store_failure = table.on_store_failure.map(OnStoreFailure::from),
    );
    switch!(policy, table, shared, lease, strike_on_denial);
    policy = match &table.mode {
        None | Some(Mode::Word(ModeWord::Enforce)) => policy,
        Some(Mode::Word(ModeWord::Shadow)) => policy.shadow(),
        Some(Mode::Share(share)) => policy.enforce_for_percent(share.enforce_for),
    };
    let (mut of_layers, mut of_limiters) = (policy.clone(), policy);
    let hold_for = table.hold_for.map(|time| time.0);
    set!(
        of_layers,
        key = key,
        on_missing_key = table.on_missing_key.map(OnMissingKey::from),
        settle_by = settle_by,
        hold_for = hold_for,
    );
    // What requests of a layer hold counts in the same buckets. Strikes are never held.
    let is_held = !(settles && amount.base.algorithm() == Algorithm::Penalty);
    let hold_for = hold_for.or(settles.then_some(Policy::DEFAULT_HOLD_FOR));
    set!(of_limiters, hold_for = hold_for.filter(|_| is_held));

    for (tier, quota) in &amount.quotas {
        let policy = of_layers.clone().with_quota(*quota);
        let alone = RateLimitLayer::builder().policy(policy);
        if let Err(error) = alone.policy(other_than(name)).build() {
            match blame::fields(&error) {
                // A table of tiers is wrong at the tier.
                ["quota", ..] => reading.report_error(tier, &error),
                fields => reading.report_in(at, fields, &error),
            }
        }
    }
    (reading.problems.len() == before).then(|| Policies {
        of_layers: amount.choose(of_layers, name),
        of_limiters: amount.choose(of_limiters, name),
    })
}

/// Returns a policy that denies: one that strikes on denials has no effect alone.
fn other_than(name: &str) -> Policy {
    let name = if name == "other" { "another" } else { "other" };
    Policy::new(name, FixedWindow::per_second(1))
}

impl From<StoreFailure> for OnStoreFailure {
    fn from(word: StoreFailure) -> Self {
        match word {
            StoreFailure::Local => Self::local(),
            StoreFailure::ShareOf(processes) => Self::share_of(processes),
            StoreFailure::Allow => Self::Allow,
            StoreFailure::Deny => Self::Deny,
        }
    }
}
