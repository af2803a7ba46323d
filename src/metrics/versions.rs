//! What a layer or limiter counted under settings that others have replaced.

use std::{mem, sync::Arc};

use super::snapshot::{Decisions, PolicyCounts, Requests};
use crate::policy_name::Name;

/// Numbers of a layer or limiter.
#[derive(Clone, Default)]
pub(super) struct Totals {
    pub(super) requests: Requests,
    pub(super) decisions: Decisions,
    pub(super) policies: Vec<(Name, PolicyCounts)>,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.requests.add(&other.requests);
        self.decisions.add(&other.decisions);
        for (name, counts) in &other.policies {
            // The policies that were added last are the last ones of the list.
            let known = self.policies.iter().position(|(known, _)| known == name);
            let (name, mut sum) = match known {
                Some(place) => self.policies.remove(place),
                None => (name.clone(), PolicyCounts::default()),
            };
            sum.add(counts);
            self.policies.push((name, sum));
        }
    }

    /// Returns the counts of a policy.
    pub(super) fn policy(&self, policy: &Name) -> PolicyCounts {
        let mut policies = self.policies.iter();
        let found = policies.find(|(name, _)| name == policy);
        found.map(|(_, counts)| *counts).unwrap_or_default()
    }
}

/// The recorder of one version.
pub(super) trait Version: Sized {
    /// Returns what this version counted.
    fn own(&self) -> Totals;

    /// Returns what was counted before this version. It is empty from then on.
    fn take_former(&self) -> Former<Self>;

    /// Returns the numbers of all versions up to this one.
    fn totals(&self) -> Totals;
}

/// What was counted before one version.
pub(super) struct Former<R> {
    /// By versions that are gone.
    counted: Totals,
    /// Requests that began under former versions still count here.
    in_use: Vec<Arc<R>>,
}

/// How many policies that are gone keep their counts, for the case that they return. Of more, those
/// that went first start at 0 if they return.
pub(super) const GONE_POLICIES: usize = 256;

impl<R: Version> Former<R> {
    pub(super) fn none() -> Self {
        Self {
            counted: Totals::default(),
            in_use: Vec::new(),
        }
    }

    pub(super) fn of(recorder: Arc<R>) -> Self {
        Self {
            counted: Totals::default(),
            in_use: vec![recorder],
        }
    }

    /// Takes from each recorder what it knows about those before it. `policies`: those of the
    /// present version.
    #[cfg(any(test, feature = "control"))]
    pub(super) fn take_over(&mut self, policies: &[Name]) {
        let mut before = Vec::new();
        for recorder in &self.in_use {
            let Self { counted, in_use } = recorder.take_former();
            self.counted.add(&counted);
            before.extend(in_use);
        }
        self.in_use.extend(before);
        self.fold(policies);
    }

    /// Returns the numbers of all former versions.
    pub(super) fn totals(&mut self, policies: &[Name]) -> Totals {
        self.fold(policies);
        let mut totals = self.counted.clone();
        for recorder in &self.in_use {
            totals.add(&recorder.totals());
        }
        totals
    }

    /// Adds up the numbers of recorders that no request uses any more.
    fn fold(&mut self, policies: &[Name]) {
        for recorder in mem::take(&mut self.in_use) {
            match Arc::try_unwrap(recorder) {
                Ok(unused) => {
                    self.counted.add(&unused.own());
                    let Self { counted, in_use } = unused.take_former();
                    self.counted.add(&counted);
                    self.in_use.extend(in_use);
                }
                Err(used) => self.in_use.push(used),
            }
        }
        let is_gone = |name: &Name| !policies.contains(name);
        let gone = self.counted.policies.iter();
        let gone = gone.filter(|(name, _)| is_gone(name)).count();
        let mut too_many = gone.saturating_sub(GONE_POLICIES);
        self.counted.policies.retain(|(name, _)| {
            let is_dropped = too_many > 0 && is_gone(name);
            too_many -= usize::from(is_dropped);
            !is_dropped
        });
    }

    /// Returns how many recorders are in use, and how many policies have counts of others.
    #[cfg(all(test, feature = "http"))]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.in_use.len(), self.counted.policies.len())
    }
}
