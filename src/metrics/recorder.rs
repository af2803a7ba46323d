//! [`Recorder`]: counts the requests of one layer or limiter.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    counter::Counters,
    observe::{Observe, Observed, RequestResult},
    snapshot::{Checks, Decisions, Requests, Snapshot, Unread},
    store::StoreMetrics,
    waits::Waits,
};
use crate::{
    Clock, Decision, PolicyDecision, Source, StoreError, decision::DenialReason,
    offenders::Offenders, policy_name::Name,
};

/// Counts the requests of one layer or limiter: one addition for the request, and one for each
/// policy that was asked.
///
/// All numbers are fixed when it is built. No request adds a series. Settings that are replaced have
/// a recorder of their own on the same counters, so requests of both are seen at once.
pub(crate) struct Recorder {
    /// The number of the layer or limiter, which no other one of the process has or had. All its
    /// versions have it.
    pub(crate) id: usize,
    pub(crate) name: Arc<str>,
    /// A line for each [`RequestResult`], with a place for each [`Source`]. One more line has
    /// [what was not read](UNREAD).
    requests: Arc<Counters>,
    policies: Box<[PolicyCounters]>,
    /// The counters of policies that former settings had, the latest first. They may return.
    gone: Box<[PolicyCounters]>,
    /// Counts the callers that wait.
    pub(crate) waits: Arc<Waits>,
    pub(crate) offenders: Arc<Offenders>,
    pub(crate) observer: Option<Arc<dyn Observe>>,
}

/// The counters of the policies of one name, whatever settings they have.
#[derive(Clone)]
struct PolicyCounters {
    name: Name,
    /// One line, with a place for each [`Checked`] and one for bans.
    counters: Arc<Counters>,
}

/// The lines of the counters of requests.
const RESULTS: usize = RequestResult::Cancelled as usize + 1;
/// The line of requests with a text that cannot be read, in the order of [`Unread`].
const UNREAD: usize = RESULTS;
/// The place of requests that no source decided, behind those of the sources.
const UNDECIDED: usize = Source::StoreFailure as usize + 1;

/// The places in the line of a policy: in the order of [`Checks`], and then its [bans](BANS).
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

const BANS: usize = Checked::Unknown as usize + 1;

impl Checked {
    fn by(policy: &PolicyDecision) -> Self {
        if policy.has_ample_room() {
            Self::Allowed
        } else if !policy.is_denied() {
            Self::Near
        } else if policy.is_impossible() {
            Self::Impossible
        } else {
            Self::Denied
        }
    }
}

/// How many removed policies keep their counters. Beyond that, those that were removed first start
/// at 0 if they return.
const GONE_POLICIES: usize = 64;

impl Recorder {
    /// Creates the recorder of a layer or limiter. `former`: that of settings which this one's
    /// replace. Counts continue: those of the requests, and those of each policy whose name stays.
    /// Under another name of the layer or limiter, which is another series, all start at 0, and the
    /// lists of denials are empty. Their times are those of `clock`.
    pub(crate) fn new<'a>(
        former: Option<&Self>,
        name: Arc<str>,
        policies: impl IntoIterator<Item = &'a Name>,
        observer: Option<Arc<dyn Observe>>,
        clock: Option<Arc<dyn Clock>>,
    ) -> Arc<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);

        let former = former.filter(|former| former.name == name);
        let known = former.map(|former| former.policies.iter().chain(&former.gone));
        let mut known: Vec<_> = known.into_iter().flatten().collect();
        let policies = policies.into_iter().map(|name| {
            match known.iter().position(|known| known.name == *name) {
                Some(place) => known.remove(place).clone(),
                None => PolicyCounters {
                    name: name.clone(),
                    counters: Arc::new(Counters::new(1)),
                },
            }
        });
        let policies = policies.collect();
        known.truncate(GONE_POLICIES);
        Arc::new(Self {
            id: former.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed), |former| former.id),
            requests: match former {
                Some(former) => Arc::clone(&former.requests),
                None => Arc::new(Counters::new(RESULTS + 1)),
            },
            waits: former.map_or_else(Waits::new, |former| Arc::clone(&former.waits)),
            offenders: match former {
                Some(former) => Arc::clone(&former.offenders),
                None => Offenders::new(clock),
            },
            gone: known.into_iter().cloned().collect(),
            name,
            policies,
            observer,
        })
    }

    /// Counts a request that was decided, and the check of each policy.
    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        let policies = decision.policies();
        // A decision lists its policies in the order of configuration.
        let has_all = policies.len() == self.policies.len();
        let mut bans = false;
        for (number, policy) in policies.enumerate() {
            let checked = Checked::by(policy);
            bans |= policy.is_banned();
            match self.policies.get(number).filter(|_| has_all) {
                Some(own) => own.add(checked as usize),
                None => self.add(policy.interned_name(), checked as usize),
            }
        }
        if bans {
            self.bans_started(decision);
        }
        let result = RequestResult::of(decision);
        let place = match result {
            RequestResult::NotLimited => UNDECIDED,
            RequestResult::StoreFailed => Source::StoreFailure as usize,
            _ => decision.source() as usize,
        };
        self.requests.add(result as usize, place);
        if self.observer.is_some() {
            self.observe(result, Some(decision));
        }
    }

    /// Counts a request whose headers have an address that cannot be read.
    pub(crate) fn address_unread(&self) {
        self.requests.add(UNREAD, 0);
    }

    /// Counts a request whose response has a cost that cannot be read.
    pub(crate) fn cost_unread(&self) {
        self.requests.add(UNREAD, 1);
    }

    /// Counts the bans that a check, strikes or a settlement have started.
    pub(crate) fn bans_started(&self, decision: &Decision) {
        let policies = decision.policies();
        for policy in policies.filter(|policy| policy.has_started_ban()) {
            self.add(policy.interned_name(), BANS);
        }
    }

    /// Counts a request whose store answered at once.
    pub(crate) fn answered(&self, answer: &Result<Decision, StoreError>) {
        match answer {
            Ok(decision) => self.decided(decision),
            Err(error) => self.failed(error),
        }
    }

    /// Counts a request that was denied before a store was asked, or because it failed.
    /// `policy`: the one whose key could not be read.
    pub(crate) fn denied_without_decision(&self, reason: DenialReason, policy: Option<&Name>) {
        let result = RequestResult::of_denial(reason);
        let policy = policy.filter(|_| result == RequestResult::KeyMissing);
        self.undecided(result, policy);
    }

    /// Counts a request that the store failed to decide.
    pub(crate) fn failed(&self, error: &StoreError) {
        self.undecided(RequestResult::of_error(error), None);
    }

    /// Counts a request that was dropped before it was decided.
    pub(crate) fn cancelled(&self) {
        self.undecided(RequestResult::Cancelled, None);
    }

    /// `policy`: the one that found no key.
    fn undecided(&self, result: RequestResult, policy: Option<&Name>) {
        let place = match result {
            RequestResult::StoreFailed => Source::StoreFailure as usize,
            RequestResult::Listed => Source::List as usize,
            _ => UNDECIDED,
        };
        self.requests.add(result as usize, place);
        if let Some(policy) = policy {
            self.add(policy, Checked::KeyMissing as usize);
        }
        // A cancelled request is counted in a destructor, in which a second panic would end the
        // process.
        if result != RequestResult::Cancelled || !thread::panicking() {
            self.observe(result, None);
        }
    }

    /// Counts the check of a shadow policy, whose denials deny no request.
    pub(crate) fn shadow_decided(&self, policy: &PolicyDecision) {
        let checked = match Checked::by(policy) {
            Checked::Denied | Checked::Impossible => Checked::ShadowDenied,
            checked => checked,
        };
        self.add(policy.interned_name(), checked as usize);
    }

    /// Counts a check of a shadow policy that the store failed to decide.
    pub(crate) fn shadow_unknown(&self, policy: &Name) {
        self.add(policy, Checked::Unknown as usize);
    }

    /// Counts a request that lacks the key of a shadow policy.
    pub(crate) fn shadow_key_missing(&self, policy: &Name) {
        self.add(policy, Checked::KeyMissing as usize);
    }

    /// Adds 1 in the line of a policy.
    fn add(&self, policy: &Name, place: usize) {
        if let Some(own) = self.policies.iter().find(|own| own.name == *policy) {
            own.add(place);
        }
    }

    fn observe(&self, result: RequestResult, decision: Option<&Decision>) {
        let Some(observer) = &self.observer else {
            return;
        };
        observer.decided(&Observed {
            limiter: &self.name,
            result,
            decision,
        });
    }

    /// Returns the numbers as they are now, with those of the store.
    pub(crate) fn snapshot(&self, store: StoreMetrics) -> Snapshot {
        let mut results = [0; RESULTS];
        let mut sources = [0; UNDECIDED];
        for (line, result) in results.iter_mut().enumerate() {
            let counts = self.requests.sum(line);
            *result = counts.iter().sum();
            for (source, count) in sources.iter_mut().zip(counts) {
                *source += count;
            }
        }
        let [address, cost, ..] = self.requests.sum(UNREAD);
        let policies = self.policies.iter().map(|own| {
            let [checks @ .., bans] = own.counters.sum(0);
            (own.name.clone(), Checks::from_array(checks), bans)
        });
        Snapshot {
            id: self.id,
            limiter: Arc::clone(&self.name),
            requests: Requests::from_array(results),
            decisions: Decisions::from_array(sources),
            unread: Unread::from_array([address, cost]),
            policies: policies.collect(),
            wait_seconds: self.waits.seconds.snapshot(),
            waiting: self.waits.waiting.load(Ordering::Relaxed),
            store,
        }
    }
}

impl PolicyCounters {
    #[inline]
    fn add(&self, place: usize) {
        self.counters.add(0, place);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("name", &self.name)
            .field("policies", &self.policies.len())
            .field("observer", &self.observer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
