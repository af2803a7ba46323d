//! The policies that use a store, so that one name with two quotas is noticed.

use std::{fmt, sync::Mutex};

use crate::{Quota, policy_name::Name, telemetry, util::lock::lock};

/// The policies of the layers and limiters on one store, while these exist.
#[derive(Default)]
pub(super) struct KnownPolicies(Mutex<Vec<Used>>);

struct Used {
    name: Name,
    quota: Quota,
    is_alive: Box<dyn Fn() -> bool + Send + Sync>,
    was_logged: bool,
}

/// The most policies that are compared.
const MOST: usize = 1_024;

impl KnownPolicies {
    /// Adds a policy that is used as long as `is_alive` returns `true`.
    pub(super) fn add(
        &self,
        name: &Name,
        quota: Quota,
        is_alive: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        let mut policies = lock(&self.0);
        policies.retain(|used| (used.is_alive)());
        let of_this_name = || policies.iter().filter(|used| used.name == *name);
        let other = of_this_name()
            .map(|used| used.quota)
            .find(|other| *other != quota);
        let was_logged = of_this_name().any(|used| used.was_logged);
        if policies.len() < MOST {
            policies.push(Used {
                name: name.clone(),
                quota,
                is_alive: Box::new(is_alive),
                was_logged: was_logged || other.is_some(),
            });
        }
        drop(policies);
        if let Some(other) = other.filter(|_| !was_logged) {
            telemetry::two_quotas(&name.text, other, quota);
        }
    }
}

impl fmt::Debug for KnownPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownPolicies")
    }
}
