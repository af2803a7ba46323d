//! [`Snapshot`]: the numbers of a layer or limiter at one moment.

use std::sync::Arc;

use super::{counts::counts, histogram::Histogram, store::StoreMetrics, sums::Numbers};
use crate::policy_name::Name;

counts! {
    /// Requests by outcome. A [`Limiter`](crate::Limiter) counts its checks here.
    ///
    /// Each request is counted once, so the [total](Self::total) is the traffic.
    Requests, by "result", as by_result {
        /// Admitted: every policy had room.
        allowed,
        /// Denied, because a policy had no room.
        denied,
        /// Denied, because the caller is banned: by a [`Penalty`](crate::Penalty), or by operators.
        banned,
        /// Denied, because the cost exceeds what a policy can ever grant.
        impossible,
        /// Denied, because the request lacks the key of a policy.
        key_missing,
        /// Denied, because the caller is on the deny list.
        listed,
        /// Denied, because the store could not decide and a policy denies then.
        store_failed,
        /// Denied, because the application is misconfigured. In a limiter: an operation that
        /// its policies do not support.
        misconfigured,
        /// Forwarded, because no enforced policy applied.
        not_limited,
        /// Forwarded, because the caller is on the allow list.
        exempt,
        /// Dropped before it was decided: the client hung up while the store was asked, or
        /// while the request waited for room.
        cancelled,
    }
}

counts! {
    /// Decisions by where they came from: see [`Source`](crate::Source).
    Decisions, by "source", as by_source {
        /// The caller is on one of the lists.
        list,
        /// The store decided.
        store,
        /// A recent denial of the store was repeated.
        cache,
        /// This process decided from leased units.
        lease,
        /// The store failed, and this process decided.
        local,
        /// The store failed, and [`OnStoreFailure`](crate::OnStoreFailure) allowed or denied
        /// without a decision.
        store_failure,
    }
}

counts! {
    /// Requests with a text that cannot be read, by what it was to be. The log has each field with
    /// its source once.
    Unread, by "what", as by_what {
        /// A trusted proxy wrote an entry that is not an address: see
        /// [`key::client_ip`](crate::key::client_ip). Such requests share the proxy's key.
        address,
        /// The response has a field that is not a cost: see
        /// [`settle::header`](crate::settle::header), and
        /// [`settle::failures`](crate::settle::failures) for `grpc-status`. Such requests are
        /// charged in full.
        cost,
    }
}

counts! {
    /// The outcomes of requests under one policy. A request that another policy denied is counted,
    /// too.
    Checks, by "result", as by_result {
        /// There was room, and a fifth of the capacity or more is left.
        allowed,
        /// There was room, and less than a fifth of the capacity is left.
        near,
        /// There was no room.
        denied,
        /// The cost exceeds what the policy can ever grant.
        impossible,
        /// The request lacks the key, so it was denied. A shadow policy lets it pass.
        key_missing,
        /// A shadow policy had no room, or the cost exceeds what it can ever grant.
        shadow_denied,
        /// A shadow policy was not decided, mostly because the store failed.
        unknown,
    }
}

/// The numbers of a layer or limiter, as they were at one moment.
///
/// All are counted from the time when it was built, and only in this process.
/// [`RateLimitLayer::metrics`](crate::RateLimitLayer::metrics) and
/// [`Limiter::metrics`](crate::Limiter::metrics) return it. Taking one costs less than a
/// millisecond, and no request waits for longer than one part of a store's memory is looked at.
///
/// Numbers are read one after the other while requests are served. So a request may be in one of
/// them and not yet in another.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of the layer or limiter, which no other one of the process has.
    pub(super) id: usize,
    pub(super) limiter: Arc<str>,
    /// What became of the requests.
    pub requests: Requests,
    /// Where their decisions came from.
    pub decisions: Decisions,
    /// The requests with a text that cannot be read. Always 0 for a [`Limiter`](crate::Limiter).
    pub unread: Unread,
    /// The checks of each policy, and the bans that it has started.
    pub(super) policies: Vec<(Name, Checks, u64)>,
    /// How long callers waited to be admitted: with
    /// [`wait_up_to`](crate::RateLimitLayerBuilder::wait_up_to), in a queue, or in
    /// [`acquire`](crate::Limiter::acquire). Callers that did not have to wait are not counted.
    /// Those that left, or were denied in the end, are.
    pub wait_seconds: Histogram,
    /// How many callers wait now.
    pub waiting: u64,
    /// The numbers of the store. Layers and limiters on one store have the same.
    pub store: StoreMetrics,
}

impl Snapshot {
    /// Returns the name of the layer or limiter, which is the label `limiter`.
    pub fn limiter(&self) -> &str {
        &self.limiter
    }

    /// Returns each policy with its checks, in the order of configuration.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (&str, &Checks)> {
        let policies = self.policies.iter();
        policies.map(|(name, checks, _)| (&*name.text, checks))
    }

    /// Returns the checks of a policy by its name.
    pub fn policy(&self, name: &str) -> Option<&Checks> {
        let mut policies = self.policies();
        policies.find_map(|(policy, checks)| (policy == name).then_some(checks))
    }

    /// Returns how many bans each policy has started, in the order of configuration: 0 unless it is
    /// a [`Penalty`](crate::Penalty).
    ///
    /// A ban is counted here if this layer or limiter made the strike, or the
    /// [ban by hand](crate::Limiter::ban), before which the caller was not banned.
    pub fn bans(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        let policies = self.policies.iter();
        policies.map(|(name, _, bans)| (&*name.text, *bans))
    }
}

impl Numbers for Snapshot {
    fn id(&self) -> Option<usize> {
        Some(self.id)
    }

    fn name(&self) -> &str {
        &self.limiter
    }

    /// Leaves the stores out, which are exported by themselves.
    fn add(&mut self, other: &Self) {
        self.wait_seconds.add(&other.wait_seconds);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.requests.add(&other.requests);
        self.decisions.add(&other.decisions);
        self.unread.add(&other.unread);
        for (name, checks, bans) in &other.policies {
            match self.policies.iter_mut().find(|(own, ..)| own == name) {
                Some((_, own, own_bans)) => {
                    own.add(checks);
                    *own_bans = own_bans.wrapping_add(*bans);
                }
                None => self.policies.push((name.clone(), *checks, *bans)),
            }
        }
    }

    fn since(&self, former: &Self) -> Self {
        let policies = self.policies.iter().map(|(name, checks, bans)| {
            let mut known = former.policies.iter();
            match known.find(|(known, ..)| known == name) {
                // Counted from now on, as a layer that is new.
                None => (name.clone(), Checks::default(), 0),
                Some((_, before, bans_before)) => {
                    let bans = bans.saturating_sub(*bans_before);
                    (name.clone(), checks.since(before), bans)
                }
            }
        });
        Self {
            requests: self.requests.since(&former.requests),
            decisions: self.decisions.since(&former.decisions),
            unread: self.unread.since(&former.unread),
            policies: policies.collect(),
            wait_seconds: self.wait_seconds.since(&former.wait_seconds),
            ..self.clone()
        }
    }
}
