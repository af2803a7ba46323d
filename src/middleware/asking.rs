//! What a request is asked, and how far that leads at once.

use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;

use super::{policy::Rule, rejection::Refusal, settings::Settings};
use crate::{
    Decision, DenialReason, Head, Key, StoreError,
    admission::Admission,
    admission::refund::{HeldCharges, RefundGuard},
    charge::{Charge, Check, Operation},
    key::{KeyError, Reason},
    store::{Answer, BoxFuture},
    telemetry,
};

/// How far a request comes at once.
#[allow(clippy::large_enum_variant)] // In a box, each request would allocate.
pub(super) enum Asked<'a> {
    Answered(Answer<Decision>, Partitions),
    Refused(Refusal<'a>),
    Waits(Wait, Partitions),
}

/// A policy that cannot tell who is asking.
pub(super) struct Keyless<'a, 'e> {
    policy: &'a str,
    pub(super) error: &'e KeyError,
}

/// What a request waits for.
pub(super) enum Wait {
    Answer(BoxFuture<Decision>),
    Admission(Box<Admission>),
}

impl Wait {
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Decision, Option<RefundGuard>), StoreError>> {
        match self {
            Self::Answer(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                Poll::Ready(answer.map(|decision| (decision, None)))
            }
            Self::Admission(admission) => Pin::new(&mut **admission).poll(cx),
        }
    }
}

/// More policies than that are listed elsewhere than on the stack.
const FEW: usize = 4;

/// The partition key of each leg, where they are wanted.
pub(super) type Partitions = Option<Box<[[u8; 12]]>>;

impl Settings {
    /// Asks for what the policies want of a request.
    #[inline]
    pub(super) fn ask(&self, head: &Head<'_>) -> Asked<'_> {
        self.with_legs(head, |legs| match legs {
            Ok(legs) => self.ask_for(legs),
            Err(keyless) => self.without_key(&keyless),
        })
    }

    #[inline(always)]
    fn ask_for(&self, legs: &[Charge<'_>]) -> Asked<'_> {
        if legs.is_empty() {
            return Asked::Answered(Answer::Now(Ok(Decision::of_no_policy())), None);
        }
        let partitions = self.partitions(legs);
        if self.waits_for(legs) {
            let legs = HeldCharges::new(&self.store, legs);
            let wait = self.wait.unwrap_or_default();
            let admission = Admission::new(legs, wait, false, self.max_waiting);
            return Asked::Waits(Wait::Admission(Box::new(admission)), partitions);
        }
        let answer = self.store.check(&Check::new(Operation::Take, legs));
        Asked::Answered(answer, partitions)
    }

    /// Does something with what the policies that apply want of a request. What
    /// comes of it may be large, and goes by no other way.
    #[inline]
    pub(super) fn with_legs<'a, T>(
        &'a self,
        head: &Head<'_>,
        then: impl FnOnce(Result<&[Charge<'_>], Keyless<'a, '_>>) -> T,
    ) -> T {
        if self.when.as_ref().is_some_and(|when| !(when.0)(head)) {
            return then(Ok(&[]));
        }
        match &*self.rules {
            // Most have one, which needs no list.
            [rule] => match &rule.key(head) {
                Ok(Some(key)) => then(Ok(&[rule.leg(key, head)])),
                Ok(None) => then(Ok(&[])),
                Err(error) => then(Err(rule.keyless(error))),
            },
            rules => with_several(rules, head, then),
        }
    }

    /// Whether there may be more to wait for than the store's answer, or what
    /// is taken must be given back.
    fn waits_for(&self, legs: &[Charge<'_>]) -> bool {
        let is_held =
            |leg: &Charge<'_>| leg.demand.quota.is_concurrency() || leg.demand.quota.paces();
        self.wait.is_some() || legs.iter().any(is_held)
    }

    #[cold]
    fn without_key<'a>(&self, keyless: &Keyless<'a, '_>) -> Asked<'a> {
        self.report(keyless.error);
        Asked::Refused(match keyless.error.reason() {
            Reason::Missing(missing) => Refusal::key_missing(keyless.policy, missing),
            Reason::Miswired(_) => DenialReason::Miswired.into(),
        })
    }

    /// Logs once that the application lacks a part.
    pub(super) fn report(&self, error: &KeyError) {
        let is_first = |flag: &AtomicBool| {
            !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed)
        };
        match error.reason() {
            Reason::Missing(missing) => {
                if let Some(name) = missing.extension() {
                    if is_first(&self.logged.extension) {
                        telemetry::extension_missing(name);
                    }
                }
            }
            Reason::Miswired(advice) => {
                if is_first(&self.logged.miswired) {
                    telemetry::miswired(advice);
                }
            }
        }
    }

    fn partitions(&self, legs: &[Charge<'_>]) -> Partitions {
        let secret = &self.partition_secret.as_ref()?.0;
        let partition = |leg: &Charge<'_>| {
            let mut hasher = blake3::Hasher::new_keyed(secret);
            hasher.update(leg.policy().as_bytes());
            // Names are printable: this byte ends them.
            hasher.update(&[0]);
            hasher.update(leg.key_bytes());
            let hash = hasher.finalize();
            hash.as_bytes()
                .first_chunk::<12>()
                .copied()
                .unwrap_or_default()
        };
        Some(legs.iter().map(partition).collect())
    }
}

impl Rule {
    fn keyless<'e>(&self, error: &'e KeyError) -> Keyless<'_, 'e> {
        Keyless {
            policy: &self.base.name.text,
            error,
        }
    }
}

/// By itself, so that who has one policy need not make room on the stack for more.
#[inline(never)]
fn with_several<'a, T>(
    rules: &'a [Rule],
    head: &Head<'_>,
    then: impl FnOnce(Result<&[Charge<'_>], Keyless<'a, '_>>) -> T,
) -> T {
    // In loops: collected, each would be moved twice.
    let mut keys: SmallVec<[Option<Key>; FEW]> = SmallVec::with_capacity(rules.len());
    for rule in rules {
        match rule.key(head) {
            Ok(key) => keys.push(key),
            Err(error) => return then(Err(rule.keyless(&error))),
        }
    }
    let mut legs: SmallVec<[Charge<'_>; FEW]> = SmallVec::with_capacity(rules.len());
    for (rule, key) in rules.iter().zip(&keys) {
        if let Some(key) = key {
            legs.push(rule.leg(key, head));
        }
    }
    then(Ok(&legs))
}
