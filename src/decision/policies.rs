//! [`Policies`]: the outcomes of all enforced policies of a check.

use std::{slice, sync::Arc};

use super::policy::PolicyDecision;

/// One policy is stored inline: an `Arc` would cost each request an allocation and a count.
/// Two inline would double the size of every decision, which is copied often.
#[derive(Clone)]
pub(super) enum Policies {
    /// No policy was asked, and this many units pass.
    None(u64),
    One(PolicyDecision),
    Many(Arc<[PolicyDecision]>),
}

impl Policies {
    pub(super) fn as_slice(&self) -> &[PolicyDecision] {
        // Nearly all decisions. In the `match`, it would be behind a jump table: the rows "memory"
        // of the benchmark show it.
        if let Self::One(policy) = self {
            return slice::from_ref(policy);
        }
        match self {
            Self::None(_) | Self::One(_) => &[],
            Self::Many(all) => all,
        }
    }

    /// Returns the units that pass if no policy was asked.
    pub(super) const fn unlimited(&self) -> Option<u64> {
        match self {
            Self::None(units) => Some(*units),
            Self::One(_) | Self::Many(_) => None,
        }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [PolicyDecision] {
        match self {
            Self::None(_) => &mut [],
            Self::One(policy) => slice::from_mut(policy),
            Self::Many(all) => Arc::make_mut(all),
        }
    }
}

impl FromIterator<PolicyDecision> for Policies {
    /// Collects in place if the number is known.
    fn from_iter<T: IntoIterator<Item = PolicyDecision>>(policies: T) -> Self {
        let mut policies = policies.into_iter();
        match policies.size_hint() {
            (_, Some(0 | 1)) => policies.next().map_or_else(|| Self::None(0), Self::One),
            _ => Self::Many(policies.collect()),
        }
    }
}
