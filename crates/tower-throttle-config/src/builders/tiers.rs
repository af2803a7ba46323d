//! `quota`: one for all callers, or one for each tier.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::reading::Reading;
use crate::{field::Field, problem::Code, readers::TierBy, suggest::closest, telemetry};
use tower_throttle::{Quota, RequestHead};

/// How much a policy grants.
pub(super) enum Amount<'a> {
    One(Field<'a>, Quota),
    Tiers(Tiers<'a>),
}

/// A quota for each tier of callers.
pub(super) struct Tiers<'a> {
    by: Arc<TierBy>,
    tiers: Vec<(&'a str, Field<'a>, Quota)>,
    otherwise: Quota,
}

/// Reads a quota or a table of tiers.
pub(super) fn read<'a>(reading: &mut Reading<'_>, field: &Field<'a>) -> Option<Amount<'a>> {
    if field.table().is_none() {
        return Some(Amount::One(field.clone(), quota(reading, field)?));
    }
    let registered = &reading.readers.quota;
    let by = reading.named(field.get("by").as_ref(), registered, "quota");
    let mut tiers = Vec::new();
    let mut names = Vec::new();
    for (name, tier) in field.get("tiers").iter().flat_map(Field::entries) {
        names.push(name);
        let quota = quota(reading, &tier);
        tiers.extend(quota.map(|quota| (name, tier, quota)));
    }
    let otherwise = field.get("otherwise")?;
    let name = otherwise.text()?;
    if !names.contains(&name) {
        let proposal = match closest(name, names.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => "add it to `tiers`".to_owned(),
        };
        let message = format!("no tier {name:?}; {proposal}");
        reading.report(&otherwise, Code::UnknownTier, message);
    }
    let (_, _, otherwise) = tiers.iter().find(|(tier, ..)| *tier == name)?;
    Some(Amount::Tiers(Tiers {
        by: Arc::clone(by?),
        otherwise: *otherwise,
        tiers,
    }))
}

/// Returns the quota of a tier of a policy, or that of `otherwise`.
pub(super) fn find(policy: &Field<'_>, tier: Option<&str>) -> Option<Quota> {
    let table = policy
        .get("quota")
        .filter(|quota| quota.table().is_some())?;
    let otherwise = table.get("otherwise")?;
    let tier = tier.or(otherwise.text())?;
    let tiers = table.get("tiers")?;
    let mut tiers = tiers.entries();
    let (_, quota) = tiers.find(|(name, _)| *name == tier)?;
    quota.text()?.parse().ok()
}

fn quota(reading: &mut Reading<'_>, field: &Field<'_>) -> Option<Quota> {
    let quota = field.text()?.parse();
    reading.keep(field, quota)
}

impl<'a> Amount<'a> {
    /// Returns all quotas that a request may have, with their fields.
    pub(super) fn quotas(&self) -> Vec<(&Field<'a>, &Quota)> {
        match self {
            Self::One(field, quota) => vec![(field, quota)],
            Self::Tiers(tiers) => {
                let tiers = tiers.tiers.iter();
                tiers.map(|(_, field, quota)| (field, quota)).collect()
            }
        }
    }

    /// Returns the quota of a policy that has one: that of the other callers, if there are tiers.
    pub(super) const fn base(&self) -> Quota {
        match self {
            Self::One(_, quota) => *quota,
            Self::Tiers(tiers) => tiers.otherwise,
        }
    }
}

impl Tiers<'_> {
    /// Returns what chooses the quota of each request.
    pub(super) fn into_choice(
        self,
        policy: &str,
    ) -> impl Fn(&RequestHead<'_>) -> Quota + Send + Sync + 'static {
        let tiers = self.tiers.into_iter();
        let tiers: BTreeMap<Box<str>, Quota> =
            tiers.map(|(name, _, quota)| (name.into(), quota)).collect();
        let (by, otherwise, policy) = (self.by, self.otherwise, Box::<str>::from(policy));
        let is_logged = AtomicBool::new(false);
        move |head| {
            let Some(name) = by(head) else {
                return otherwise;
            };
            tiers.get(name).copied().unwrap_or_else(|| {
                if !is_logged.swap(true, Ordering::Relaxed) {
                    telemetry::unknown_tier(&policy);
                }
                otherwise
            })
        }
    }
}
