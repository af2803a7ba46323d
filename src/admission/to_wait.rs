//! Whether a denied caller waits, how long, and in which queue.

use std::time::Duration;

use tokio::time::Instant;

use super::{Admission, LONGEST_BACKOFF, refund::HeldCharges, wait_queue::windows::WindowWaiter};
use crate::{
    Decision, PolicyDecision,
    util::{random::random_between, time::later},
};

impl Admission {
    /// Returns the longest wait before asking again; `None` if waiting is useless.
    pub(super) fn worth_waiting(
        &mut self,
        held: &HeldCharges,
        decision: &Decision,
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
                    permits = Some((policy.name(), is_kept));
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
        let (name, is_kept) = permits?;
        match &self.permit {
            Some(permit) if is_kept => permit.record_denial(),
            _ => {
                self.permit = None;
                self.permit = Some(held.enter_queue(name, decision, self.max_waiting)?);
            }
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
        let place =
            WindowWaiter::enter(&bucket, denied, not_before, self.deadline, self.max_waiting)?;
        self.window = Some((policy, place));
        Some(())
    }
}

/// Varies a time at random, so that callers that were denied together ask at different
/// times.
fn jittered(backoff: Duration) -> Duration {
    backoff.mul_f64(random_between(0.875, 1.125))
}
