//! The policies that use a store, so that one name with two quotas is noticed.

use std::sync::{Arc, Mutex, Weak};

use crate::{Quota, policy::Compiled, policy_name::Name, telemetry, util::lock::lock};

/// The policies of the layers and limiters on one store, while these exist.
#[derive(Default)]
pub(super) struct KnownPolicies(Mutex<Vec<Used>>);

struct Used {
    name: Name,
    quota: Quota,
    by: Weak<[Compiled]>,
    was_logged: bool,
}

/// The most policies that are compared.
const MOST: usize = 1_024;

impl KnownPolicies {
    /// Adds policies that are used as long as they exist.
    pub(super) fn add(&self, policies: &Arc<[Compiled]>) {
        // Tiers have several quotas under one name.
        for policy in policies.iter().filter(|policy| !policy.has_tiers) {
            let (name, quota) = (&policy.name, *policy.demand.quota);
            let mut known = lock(&self.0);
            known.retain(|used| used.by.strong_count() > 0);
            let of_this_name = || known.iter().filter(|used| used.name == *name);
            let mut quotas = of_this_name().map(|used| used.quota);
            let other = quotas.find(|other| *other != quota);
            let was_logged = of_this_name().any(|used| used.was_logged);
            if known.len() < MOST {
                known.push(Used {
                    name: name.clone(),
                    quota,
                    by: Arc::downgrade(policies),
                    was_logged: was_logged || other.is_some(),
                });
            }
            drop(known);
            if let Some(other) = other.filter(|_| !was_logged) {
                telemetry::two_quotas(&name.text, other, quota);
            }
        }
    }
}
