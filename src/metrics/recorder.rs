//! [`Recorder`]: counts the requests of one layer or limiter.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    counter::{Adder, Counters},
    observe::{Observe, Observed, RequestResult, StoreEvent},
    snapshot::{Checks, Decisions, PolicyCounts, Requests, Snapshot},
    store::StoreMetrics,
    versions::{Former, Totals, Version},
    waits::Waits,
};
use crate::{
    Decision, PolicyDecision, Source, StoreError,
    decision::{DenialReason, Unanimous},
    policy_name::Name,
    util::lock::lock,
};

/// Counts the requests of one layer or limiter: one addition for a request with ample room under
/// all policies, or that all deny. For others, one for the request, and one for each policy that
/// was asked.
///
/// All numbers are fixed when it is built. No request adds a series.
pub(crate) struct Recorder {
    /// The number of the layer or limiter, which no other one of the process has or had.
    id: usize,
    name: Arc<str>,
    policies: Box<[Name]>,
    counters: Counters,
    waits: Arc<Waits>,
    observer: Option<Arc<dyn Observe>>,
    /// What was counted before the present settings.
    former: Mutex<Former<Self>>,
}

/// The lines of the counters: a line for each verdict, two for requests of which all policies say
/// the same, one for bans, and a line for each policy.
///
/// A request that was decided is counted under its result and its source. So the requests by
/// result and the decisions by source are two sums of the same numbers.
const ALLOWED: usize = 0;
const DENIED: usize = 1;
const IMPOSSIBLE: usize = 2;
/// The lines of requests of which all policies say the same, in the order of [`Unanimous`]. One counter
/// stands for the request and for the check of each policy. To count a denial by the only policy takes
/// 41 instructions so, and took 107 with a counter for each of them.
const UNANIMOUS: usize = 3;
const BANNED: usize = 5;
const FIRST_POLICY: usize = 6;

/// The sources of stores and their failures are the first places of the lines but those of
/// policies.
const SOURCES: usize = 5;

/// The places of requests that no store decided, behind those of the sources.
const NOT_LIMITED: (usize, usize) = (ALLOWED, SOURCES);
const CANCELLED: (usize, usize) = (ALLOWED, SOURCES + 1);
const MISCONFIGURED: (usize, usize) = (ALLOWED, SOURCES + 2);
const KEY_MISSING: (usize, usize) = (DENIED, SOURCES);
const STORE_FAILED: (usize, usize) = (DENIED, SOURCES + 1);
const LISTED: (usize, usize) = (DENIED, SOURCES + 2);
const EXEMPT: (usize, usize) = (IMPOSSIBLE, SOURCES);
const BANNED_BY_HAND: (usize, usize) = (BANNED, SOURCES);

/// The places in the line of a policy. The last one is that of [bans](BANS).
#[derive(Clone, Copy)]
enum Checked {
    Allowed,
    Near,
    Denied,
    Impossible,
    KeyMissing,
    ShadowDenied,
    Unknown,
}

/// The place of the bans that a policy has started, in its line.
const BANS: usize = 7;

impl Recorder {
    pub(crate) fn new<'a>(
        name: Arc<str>,
        policies: impl IntoIterator<Item = &'a Name>,
        observer: Option<Arc<dyn Observe>>,
    ) -> Arc<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);

        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::with(id, name, policies, observer, Waits::new(), Former::none())
    }

    fn with<'a>(
        id: usize,
        name: Arc<str>,
        policies: impl IntoIterator<Item = &'a Name>,
        observer: Option<Arc<dyn Observe>>,
        waits: Arc<Waits>,
        former: Former<Self>,
    ) -> Arc<Self> {
        let policies: Box<[Name]> = policies.into_iter().cloned().collect();
        Arc::new(Self {
            id,
            name,
            counters: Counters::new(FIRST_POLICY + policies.len()),
            policies,
            waits,
            observer,
            former: Mutex::new(former),
        })
    }

    /// Returns the recorder of settings that replace those of this one. Counts go on: those of
    /// the requests, and those of each policy whose name stays. Another name is another series, so
    /// counts start at 0 then.
    ///
    /// If the replacement takes place, [`take_over`](Self::take_over) is to be called after it.
    pub(crate) fn continued<'a>(
        self: &Arc<Self>,
        name: Arc<str>,
        policies: impl IntoIterator<Item = &'a Name> + Clone,
        observer: Option<Arc<dyn Observe>>,
    ) -> Arc<Self> {
        if self.name != name {
            return Self::new(name, policies, observer);
        }
        let is_observed_as_before = match (&self.observer, &observer) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        if is_observed_as_before && self.policies.iter().eq(policies.clone()) {
            return Arc::clone(self);
        }
        let former = Former::of(Arc::clone(self));
        let waits = Arc::clone(&self.waits);
        Self::with(self.id, name, policies, observer, waits, former)
    }

    /// Takes all that former recorders know about those before them. So no chain of them grows.
    #[cfg(any(test, feature = "control"))]
    pub(crate) fn take_over(&self) {
        lock(&self.former).take_over(&self.policies);
    }

    /// Returns a recorder of the same name and policies that has counted nothing.
    #[cfg(feature = "http")]
    pub(crate) fn restarted(&self) -> Arc<Self> {
        Self::new(
            Arc::clone(&self.name),
            &self.policies,
            self.observer.clone(),
        )
    }

    /// Returns what counts the callers that wait.
    pub(crate) const fn waits(&self) -> &Arc<Waits> {
        &self.waits
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Counts a request that was decided.
    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        let asked = decision.policies().len();
        match decision.unanimous() {
            // Nearly all requests.
            Some(all) if asked == self.policies.len() => {
                self.counters
                    .add(UNANIMOUS + all as usize, place_of_source(decision));
            }
            _ => self.count_each(decision),
        }
        if self.observer.is_some() {
            self.observe(result_of(decision), Some(decision), None);
        }
    }

    /// Counts a request, and the check of each policy.
    #[inline(never)]
    fn count_each(&self, decision: &Decision) {
        let adder = self.counters.adder();
        let policies = decision.policies();
        // A decision lists its policies in the order of configuration.
        let has_all = policies.len() == self.policies.len();
        let mut bans = false;
        for (number, policy) in policies.enumerate() {
            let checked = Checked::by(policy);
            bans |= policy.is_banned();
            if has_all {
                adder.add(FIRST_POLICY + number, checked as usize);
            } else {
                self.add_check(&adder, policy.interned_name(), checked);
            }
        }
        if bans {
            self.bans_started(decision);
        }
        let reason = decision.denial_reason_by(|| bans);
        let (line, place) = place_of(decision, reason);
        adder.add(line, place);
    }

    /// Counts the bans that a check, strikes or a settlement have started.
    #[cold]
    pub(crate) fn bans_started(&self, decision: &Decision) {
        let policies = decision.policies();
        for policy in policies.filter(|policy| policy.has_started_ban()) {
            self.add(&self.counters.adder(), policy.interned_name(), BANS);
        }
    }

    /// Counts a request whose store answered at once.
    #[inline(never)]
    pub(crate) fn answered(&self, answer: &Result<Decision, StoreError>) {
        match answer {
            Ok(decision) => self.decided(decision),
            Err(error) => self.failed(error),
        }
    }

    /// Counts a request that was denied before a store was asked, or because it failed.
    /// `policy`: the one whose key could not be read.
    #[cfg(feature = "http")]
    #[cold]
    pub(crate) fn denied_without_decision(&self, reason: DenialReason, policy: Option<&Name>) {
        let result = result_of_reason(reason);
        let policy = policy.filter(|_| result == RequestResult::KeyMissing);
        self.undecided(result, policy);
    }

    /// Counts a request that the store failed to decide.
    #[cold]
    pub(crate) fn failed(&self, error: &StoreError) {
        self.undecided(result_of_error(error), None);
    }

    /// Counts a request that was dropped before it was decided.
    #[cold]
    pub(crate) fn cancelled(&self) {
        self.undecided(RequestResult::Cancelled, None);
    }

    /// `policy`: the one that found no key.
    fn undecided(&self, result: RequestResult, policy: Option<&Name>) {
        let (line, place) = match result {
            RequestResult::KeyMissing => KEY_MISSING,
            RequestResult::Misconfigured => MISCONFIGURED,
            RequestResult::Cancelled => CANCELLED,
            RequestResult::Listed => LISTED,
            _ => STORE_FAILED,
        };
        self.counters.add(line, place);
        if let Some(policy) = policy {
            self.add_check(&self.counters.adder(), policy, Checked::KeyMissing);
        }
        // A cancelled request is counted in a destructor, in which a second panic would end the
        // process.
        if result != RequestResult::Cancelled || !thread::panicking() {
            self.observe(result, None, policy);
        }
    }

    /// Counts the check of a shadow policy, whose denials deny no request.
    pub(crate) fn shadow_decided(&self, policy: &PolicyDecision) {
        let checked = match Checked::by(policy) {
            Checked::Denied | Checked::Impossible => Checked::ShadowDenied,
            checked => checked,
        };
        self.shadow(policy.interned_name(), checked);
    }

    /// Counts a check of a shadow policy that the store failed to decide.
    pub(crate) fn shadow_unknown(&self, policy: &Name) {
        self.shadow(policy, Checked::Unknown);
    }

    /// Counts a request that lacks the key of a shadow policy.
    #[cfg(feature = "http")]
    pub(crate) fn shadow_key_missing(&self, policy: &Name) {
        self.shadow(policy, Checked::KeyMissing);
    }

    fn shadow(&self, policy: &Name, checked: Checked) {
        self.add_check(&self.counters.adder(), policy, checked);
    }

    /// Counts a check of a policy.
    fn add_check(&self, adder: &Adder<'_>, policy: &Name, checked: Checked) {
        self.add(adder, policy, checked as usize);
    }

    /// Adds 1 in the line of a policy.
    fn add(&self, adder: &Adder<'_>, policy: &Name, place: usize) {
        if let Some(number) = self.policies.iter().position(|own| own == policy) {
            adder.add(FIRST_POLICY + number, place);
        }
    }

    #[cold]
    fn observe(
        &self,
        result: RequestResult,
        decision: Option<&Decision>,
        policy_without_key: Option<&Name>,
    ) {
        let Some(observer) = &self.observer else {
            return;
        };
        observer.decided(&Observed {
            limiter: &self.name,
            result,
            decision,
            policy_without_key: policy_without_key.map(|name| &*name.text),
        });
    }

    /// Returns the number of the layer or limiter, which all its versions have.
    pub(crate) const fn id(&self) -> usize {
        self.id
    }

    pub(crate) const fn has_observer(&self) -> bool {
        self.observer.is_some()
    }

    /// Tells the observer of a change of the store. A request whose thread panics may find one: a
    /// second panic would end the process.
    pub(crate) fn store_changed(&self, event: StoreEvent<'_>) {
        if let Some(observer) = self.observer.as_ref().filter(|_| !thread::panicking()) {
            observer.store_changed(&self.name, event);
        }
    }

    /// Returns the numbers as they are now, with those of the store.
    pub(crate) fn snapshot(&self, store: StoreMetrics) -> Snapshot {
        let totals = self.totals();
        let policies = self.policies.iter();
        let policies = policies.map(|name| (name.clone(), totals.policy(name)));
        Snapshot::new(
            self.id,
            Arc::clone(&self.name),
            totals.requests,
            totals.decisions,
            policies.collect(),
            &self.waits,
            store,
        )
    }
}

impl Version for Recorder {
    fn take_former(&self) -> Former<Self> {
        mem::replace(&mut *lock(&self.former), Former::none())
    }

    fn totals(&self) -> Totals {
        let mut totals = lock(&self.former).totals(&self.policies);
        totals.add(&self.own());
        totals
    }

    fn own(&self) -> Totals {
        let lines = [ALLOWED, DENIED, IMPOSSIBLE, BANNED].map(|line| self.counters.sum(line));
        let [allowed, denied, impossible, banned] = lines;
        let [a0, a1, a2, a3, a4, not_limited, cancelled, misconfigured] = allowed;
        let [d0, d1, d2, d3, d4, key_missing, store_failed, listed] = denied;
        let [i0, i1, i2, i3, i4, exempt, ..] = impossible;
        let [b0, b1, b2, b3, b4, by_hand, ..] = banned;
        let [m0, m1, m2, m3, m4, ..] = self.counters.sum(UNANIMOUS + Unanimous::AmpleRoom as usize);
        let [n0, n1, n2, n3, n4, ..] = self.counters.sum(UNANIMOUS + Unanimous::Denied as usize);
        let ample = m0 + m1 + m2 + m3 + m4;
        let all_denied = n0 + n1 + n2 + n3 + n4;
        let requests = Requests {
            allowed: a0 + a1 + a2 + a3 + a4 + ample,
            denied: d0 + d1 + d2 + d3 + d4 + all_denied,
            banned: b0 + b1 + b2 + b3 + b4 + by_hand,
            impossible: i0 + i1 + i2 + i3 + i4,
            key_missing,
            listed,
            store_failed,
            misconfigured,
            not_limited,
            exempt,
            cancelled,
        };
        let decisions = Decisions {
            list: exempt + listed + by_hand,
            store: a0 + d0 + i0 + b0 + m0 + n0,
            cache: a1 + d1 + i1 + b1 + m1 + n1,
            lease: a2 + d2 + i2 + b2 + m2 + n2,
            local: a3 + d3 + i3 + b3 + m3 + n3,
            store_failure: a4 + d4 + i4 + b4 + m4 + n4 + store_failed,
        };
        let policies = (FIRST_POLICY..).zip(&self.policies);
        let policies = policies.map(|(line, name)| {
            let mut counts = policy_counts(self.counters.sum(line));
            counts.checks.allowed += ample;
            counts.checks.denied += all_denied;
            (name.clone(), counts)
        });
        Totals {
            requests,
            decisions,
            policies: policies.collect(),
        }
    }
}

impl Checked {
    #[inline(always)]
    fn by(policy: &PolicyDecision) -> Self {
        if !policy.is_denied() {
            if policy.has_ample_room() {
                Self::Allowed
            } else {
                Self::Near
            }
        } else if policy.is_impossible() {
            Self::Impossible
        } else {
            Self::Denied
        }
    }
}

/// Reads the line of a policy, in the order of [`Checked`].
const fn policy_counts(line: [u64; 8]) -> PolicyCounts {
    let [
        allowed,
        near,
        denied,
        impossible,
        key_missing,
        shadow_denied,
        unknown,
        bans,
    ] = line;
    let checks = Checks {
        allowed,
        near,
        denied,
        impossible,
        key_missing,
        shadow_denied,
        unknown,
    };
    PolicyCounts { checks, bans }
}

/// Returns the value of the label `source`.
pub(super) fn source_of(decision: &Decision) -> &'static str {
    decision.source().name()
}

/// Returns where a decision is counted. `reason`: why it denies.
#[inline]
fn place_of(decision: &Decision, reason: Option<DenialReason>) -> (usize, usize) {
    let line = match result_by(decision, reason) {
        RequestResult::Allowed => ALLOWED,
        RequestResult::Denied => DENIED,
        RequestResult::Banned if decision.source() == Source::List => return BANNED_BY_HAND,
        RequestResult::Banned => BANNED,
        RequestResult::Impossible => IMPOSSIBLE,
        RequestResult::NotLimited => return NOT_LIMITED,
        RequestResult::Exempt => return EXEMPT,
        RequestResult::Listed => return LISTED,
        _ => return STORE_FAILED,
    };
    (line, place_of_source(decision))
}

/// Returns the place of a source in the line of a verdict.
#[inline]
fn place_of_source(decision: &Decision) -> usize {
    // In the order of declaration. What a list decides has a result of its own.
    (decision.source() as usize).saturating_sub(Source::Store as usize)
}

/// Returns what a decision makes of a request.
pub(super) fn result_of(decision: &Decision) -> RequestResult {
    result_by(decision, decision.denial_reason())
}

/// Returns what a decision makes of a request. A denial is counted by the reason that its response
/// has.
#[inline]
fn result_by(decision: &Decision, reason: Option<DenialReason>) -> RequestResult {
    match reason {
        Some(reason) => result_of_reason(reason),
        None if decision.policies().len() > 0 => RequestResult::Allowed,
        None => match decision.source() {
            Source::Store => RequestResult::NotLimited,
            Source::List => RequestResult::Exempt,
            _ => RequestResult::Allowed,
        },
    }
}

const fn result_of_reason(reason: DenialReason) -> RequestResult {
    match reason {
        DenialReason::QuotaExceeded => RequestResult::Denied,
        DenialReason::Banned => RequestResult::Banned,
        DenialReason::CostImpossible => RequestResult::Impossible,
        DenialReason::KeyMissing => RequestResult::KeyMissing,
        DenialReason::Listed => RequestResult::Listed,
        DenialReason::StoreFailed => RequestResult::StoreFailed,
        DenialReason::Misconfigured => RequestResult::Misconfigured,
    }
}

pub(super) fn result_of_error(error: &StoreError) -> RequestResult {
    if error.is_unsupported() {
        RequestResult::Misconfigured
    } else {
        RequestResult::StoreFailed
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("name", &self.name)
            .field("policies", &self.policies)
            .field("observer", &self.observer)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "http"))]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
