//! The quotas among which requests choose.

use std::sync::{Arc, OnceLock};

use crate::{Quota, kept::Kept};

/// The first quotas that requests chose, set up once each: a request of one of
/// these tiers takes a copy, where any other quota is allocated.
#[derive(Clone, Debug, Default)]
pub(super) struct Tiers([OnceLock<Kept<Quota>>; 8]);

impl Tiers {
    pub(super) fn keep(&self, quota: Quota) -> Kept<Quota> {
        let mut tiers = self.0.iter().map(|tier| tier.get_or_init(|| quota.keep()));
        match tiers.find(|tier| ***tier == quota) {
            Some(tier) => tier.clone(),
            None => Kept::Counted(Arc::new(quota)),
        }
    }
}
