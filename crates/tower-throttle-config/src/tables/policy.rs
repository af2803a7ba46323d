//! A table `[[policy]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use tower_throttle::OnMissingKey;

use super::{Key, QuotaText, Reader, Text, Time, When, words::words};

/// A named quota, and its options.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Policy {
    /// The name, which clients read and which separates the buckets.
    pub(crate) name: Text,
    /// How much: a quota, or one for each tier of callers.
    pub(crate) quota: QuotaOrTiers,
    /// The key that identifies the caller. In a list, the first key that the request has counts.
    /// Default: `peer`.
    pub(crate) key: Option<Key>,
    /// What happens to a request without the key. Default: `deny`.
    pub(crate) on_missing_key: Option<MissingKey>,
    /// Whether all callers share one bucket. Default: false.
    pub(crate) shared: Option<bool>,
    /// Which requests it applies to. Default: all.
    pub(crate) when: Option<When>,
    /// How many units a request takes. Default: 1.
    pub(crate) cost: Option<Cost>,
    /// How many units may be charged beyond the capacity. Default: as many as can be counted
    /// exactly.
    pub(crate) max_debt: Option<u64>,
    /// Whether it denies, or only counts what it would deny. Default: `enforce`.
    pub(crate) mode: Option<Mode>,
    /// What happens while the store cannot decide. Default: that of the layer or limiter.
    pub(crate) on_store_failure: Option<StoreFailure>,
    /// Whether processes lease units in advance. Default: false.
    pub(crate) lease: Option<bool>,
    /// What a request costs in the end, by its response. Default: its cost.
    pub(crate) settle_by: Option<SettleBy>,
    /// How long units are held at least until the cost of a request is known. Default: 60s with
    /// `settle_by`.
    pub(crate) hold_for: Option<Time>,
    /// Whether denials by other policies are strikes of this penalty. Default: false.
    pub(crate) strike_on_denial: Option<bool>,
}

/// How much: a quota, or one for each tier of callers.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum QuotaOrTiers {
    One(QuotaText),
    Tiers(Tiers),
}

/// A quota for each tier of callers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Tiers {
    /// The reader that returns the name of a request's tier.
    pub(crate) by: Reader,
    /// The quota of each tier.
    #[schemars(title = "a table with a name for each tier")]
    pub(crate) tiers: BTreeMap<String, QuotaText>,
    /// The tier of requests for which the reader returns no tier, or an unknown one.
    pub(crate) otherwise: Text,
}

words! {
    #[derive(Clone, Copy)]
    enum StoreFailure {
        /// Each process decides by the whole quota.
        Local = "local",
        /// Each process decides by its share of the quota.
        ShareOf(u32 = "N") = "share of ",
        /// The policy is left out.
        Allow = "allow",
        /// The request is denied with 503.
        Deny = "deny",
    }
}

words! {
    #[derive(Clone, Copy)]
    enum MissingKey for OnMissingKey {
        /// It is denied with 403.
        Deny = "deny",
        /// The policy does not apply to it.
        Skip = "skip",
        /// All such requests share one bucket.
        Share = "share",
    }
}

/// Whether a policy denies.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Mode {
    Word(ModeWord),
    Share(Share),
}

words! {
    #[derive(Clone, Copy)]
    enum ModeWord {
        /// It denies.
        Enforce = "enforce",
        /// It counts what it would deny.
        Shadow = "shadow",
    }
}

/// Enforces a policy for a share of its callers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Share {
    /// The share of callers, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) enforce_for: u8,
}

/// How many units a request takes.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Cost {
    Units(u64),
    Each(CostOfEach),
}

/// A cost for each request.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct CostOfEach {
    /// The reader that returns the cost of a request.
    pub(crate) by: Reader,
}

/// What a request costs in the end, by its response.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum SettleBy {
    Word(SettleWord),
    Table(Settler),
}

words! {
    enum SettleWord {
        /// Failures are charged, all else is free.
        Failures = "failures",
    }
}

/// What a request costs in the end.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    { "required": ["status"] }, { "required": ["header"] }, { "required": ["body_bytes"] }, { "required": ["reader"] }
]))]
#[schemars(extend("dependentSchemas" = { "pass_on": { "anyOf": [{ "required": ["header"] }] } }))]
pub(crate) struct Settler {
    /// Charges responses with one of these statuses. All else is free.
    #[schemars(inner(range(min = 100, max = 999)))]
    pub(crate) status: Option<Vec<u16>>,
    /// Charges the number of units in this header of the response.
    pub(crate) header: Option<Text>,
    /// Whether clients see that header. Default: false.
    pub(crate) pass_on: Option<bool>,
    /// Charges a unit for each block of this many bytes of the response's body, rounded up.
    #[schemars(range(min = 1))]
    pub(crate) body_bytes: Option<u64>,
    /// A settler of the application decides what a request costs.
    pub(crate) reader: Option<Reader>,
}
