//! Whether a caller asks, waits or gives up, how long, and in which queue.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{
    Admission, LONGEST_BACKOFF, Stage,
    refund::{HeldCharges, Takes},
    wait_queue::{Arrival, windows::WindowWaiter},
};
use crate::{
    Decision, PolicyDecision, Source,
    policy_name::Name,
    util::{random::random_between, time::later},
};

/// Why a caller gives up: others that came before it wait for units of this policy. They ask first.
/// `retry_after`: when it could ask, if that is known.
#[derive(Debug)]
pub(super) struct TooLate {
    pub(super) policy: Name,
    pub(super) retry_after: Option<Duration>,
}

impl Admission {
    /// Asks the store, unless callers that came before this one wait for one of its buckets. Then it
    /// waits behind them, or gives up if that would take too long.
    pub(super) fn ask_in_turn(&mut self) {
        let now = Instant::now();
        let left = self.deadline.saturating_duration_since(now);
        match self.wait_behind_others(!left.is_zero()) {
            None => self.ask(left),
            Some(Ok(())) => {
                self.wait.get_or_insert_with(|| self.recorder.waits.begin());
                self.asks_again_at = later(now, jittered(self.backoff));
                let until = Box::pin(sleep_until(self.deadline));
                self.stage = Stage::Waiting(until);
            }
            Some(Err(late)) => self.give_up(late),
        }
    }

    /// Enters the line of callers that came before this one, if there is one, and if it has time.
    fn wait_behind_others(&mut self, has_time: bool) -> Option<Result<(), TooLate>> {
        let arrival = self.arrival();
        let held = self.held.as_ref()?;
        let line = held.line_ahead(arrival.number, self.wait.is_none(), self.permit.as_ref())?;
        let (store, mut charge, bucket) = held.charge_of(line)?;
        let policy = charge.policy.clone();
        let late = |retry_after| TooLate {
            policy: policy.clone(),
            retry_after,
        };
        let is_concurrency = charge.demand.quota.is_concurrency();
        if !has_time {
            return Some(Err(late((!is_concurrency).then_some(Duration::ZERO))));
        }
        let entered = if is_concurrency {
            let place = store.enter_permit_queue(&mut charge, arrival.number, arrival.most);
            place.map(|place| (Some(place), None)).ok_or(None)
        } else if let Some(mut place) = self.window.take_if(|(_, place)| place.is_for(&bucket)) {
            place.1.stay();
            Ok((None, Some(place)))
        } else {
            let place = WindowWaiter::behind_others(&bucket, &charge, arrival);
            let place = place.map(|place| (None, Some((line.policy, place))));
            place.map_err(|opens_at| Some(opens_at.saturating_duration_since(Instant::now())))
        };
        let entered = entered.map(|places| (self.permit, self.window) = places);
        Some(entered.map_err(late))
    }

    pub(super) fn arrival(&self) -> Arrival {
        Arrival {
            number: self.number,
            deadline: self.deadline,
            most: self.max_waiting,
        }
    }

    /// Returns the longest wait before asking again; `None` if waiting is useless.
    pub(super) fn worth_waiting(
        &mut self,
        held: &HeldCharges,
        decision: &Decision,
        takes: &Takes,
    ) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let mut wait = Duration::ZERO;
        let (mut permits, mut longest) = (None, None);
        let policies = decision.policies().enumerate();
        for (place, policy) in policies.filter(|(_, policy)| policy.is_denied()) {
            let quota = policy.quota();
            // A banned caller does not wait for the end of its ban.
            if policy.is_banned() {
                return None;
            }
            if policy.is_impossible() || quota.reserves() && !policy.policy_holds() {
                // A reservation was denied: no room comes before the deadline. Units that are
                // held are not reserved.
                return None;
            }
            if quota.is_concurrency() {
                // The caller keeps its place while this policy denies it.
                let is_kept = self
                    .permit
                    .as_ref()
                    .is_some_and(|permit| held.is_waiting_for(permit, policy.name(), decision));
                if permits.is_none() || is_kept {
                    permits = Some((policy, is_kept));
                }
            } else {
                let retry = policy.retry_after()?;
                if longest.is_none() || retry > wait {
                    longest = Some((place, policy));
                }
                wait = wait.max(retry);
            }
        }
        if wait > left || left.is_zero() || self.max_waiting == 0 {
            return None;
        }
        if let Some((place, policy)) = longest {
            self.permit = None;
            self.enter_window_queue(held, decision, place, policy, wait)?;
            return Some(wait);
        }
        self.window = None;
        let (denied, is_kept) = permits?;
        if !is_kept {
            self.permit = None;
            self.permit = Some(held.enter_queue(denied.name(), decision, self.arrival())?);
        }
        if let Some(permit) = &self.permit {
            // Of permits of this process's own buckets, it is not known.
            let released_before = match decision.source() {
                Source::Local => u64::MAX,
                _ => takes.released_before(denied.name()),
            };
            permit.record_denial(denied.remaining(), released_before);
        }
        self.asks_again_at = later(Instant::now(), jittered(self.backoff));
        self.backoff = (2 * self.backoff).min(LONGEST_BACKOFF);
        Some(left)
    }

    /// Enters the queue for a window, or stays in it. Returns `None` if the queue is full, or
    /// if the caller's turn would come too late.
    fn enter_window_queue(
        &mut self,
        held: &HeldCharges,
        decision: &Decision,
        policy: usize,
        denied: &PolicyDecision,
        wait: Duration,
    ) -> Option<()> {
        let bucket = held.bucket(decision, policy)?;
        let not_before = later(Instant::now(), wait);
        if let Some((_, place)) = &mut self.window {
            if place.is_for(&bucket) {
                place.denied(not_before);
                return Some(());
            }
        }
        let place = WindowWaiter::denied_by(&bucket, denied, not_before, self.arrival());
        self.window = Some((policy, place.ok()?));
        Some(())
    }
}

/// Varies a time at random, so that callers that were denied together ask at different
/// times.
fn jittered(backoff: Duration) -> Duration {
    backoff.mul_f64(random_between(0.875, 1.125))
}
