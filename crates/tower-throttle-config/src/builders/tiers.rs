//! `quota`: one for all callers, or one for each tier.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::reading::Reading;
use crate::{
    Config, place::FilePlace, readers::TierBy, suggest::closest, tables::QuotaOrTiers, telemetry,
};
use tower_throttle::{Policy, Quota, RequestHead};

/// How much a policy grants.
pub(super) struct Amount {
    /// That of a policy without tiers, or that of `otherwise`.
    pub(super) base: Quota,
    /// All that a request may have.
    pub(super) quotas: Vec<(FilePlace, Quota)>,
    tiers: Option<(Arc<TierBy>, BTreeMap<String, Quota>)>,
}

/// Reads a quota or a table of tiers.
pub(super) fn read(
    reading: &mut Reading<'_>,
    at: &FilePlace,
    quota: &QuotaOrTiers,
) -> Option<Amount> {
    let table = match quota {
        QuotaOrTiers::One(quota) => {
            return Some(Amount {
                base: quota.0,
                quotas: vec![(at.clone(), quota.0)],
                tiers: None,
            });
        }
        QuotaOrTiers::Tiers(table) => table,
    };
    let by = reading.find(&at.to("by"), &reading.readers.quota, "quota", &table.by.0);
    let tiers = table.tiers.iter();
    let tiers: BTreeMap<_, _> = tiers.map(|(name, quota)| (name.clone(), quota.0)).collect();
    let name = &table.otherwise.0;
    let base = tiers.get(name).copied();
    if base.is_none() {
        let proposal = match closest(name, tiers.keys().map(String::as_str)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => "add it to `tiers`".to_owned(),
        };
        let message = format!("no tier {name:?}; {proposal}");
        reading.report(&at.to("otherwise"), "unknown-tier", message);
    }
    let quotas = tiers
        .iter()
        .map(|(name, quota)| (at.to("tiers").to(&name), *quota));
    Some(Amount {
        base: base?,
        quotas: quotas.collect(),
        tiers: Some((by?, tiers)),
    })
}

impl Config {
    /// Returns the quota of a tier of a policy, or that of `otherwise`. `None` if the file has no such
    /// policy, or the policy no such tier, or no tiers.
    #[must_use]
    pub fn tier(&self, policy: &str, tier: Option<&str>) -> Option<Quota> {
        let mut policies = self.document.tables.policy.iter();
        match &policies.find(|table| table.name.0 == policy)?.quota {
            QuotaOrTiers::One(_) => None,
            QuotaOrTiers::Tiers(table) => {
                let tier = tier.unwrap_or(&table.otherwise.0);
                table.tiers.get(tier).map(|quota| quota.0)
            }
        }
    }
}

impl Amount {
    /// Lets a policy choose the quota of each request, if there are tiers.
    pub(super) fn choose(&self, policy: Policy, name: &str) -> Policy {
        let (base, Some((by, tiers))) = (self.base, self.tiers.clone()) else {
            return policy;
        };
        let (name, is_logged) = (name.to_owned(), AtomicBool::new(false));
        policy.quota_by(move |head: &RequestHead<'_>| {
            let Some(tier) = by(head) else {
                return base;
            };
            tiers.get(tier).copied().unwrap_or_else(|| {
                if !is_logged.swap(true, Ordering::Relaxed) {
                    telemetry::unknown_tier(&name);
                }
                base
            })
        })
    }
}
