//! Bans, pauses and strikes of processes that lose Redis, and find it again.

use tokio::time::{Instant, sleep};
use tower_throttle::{RedisStore, testing::SimulatedRedis};

use super::minutes;
use crate::support::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const CHOICES: [OnStoreFailure; 4] = [
    OnStoreFailure::local(),
    OnStoreFailure::share_of(3),
    OnStoreFailure::Deny,
    OnStoreFailure::Allow,
];
/// What is kept is sent within this time, as a breaker is open for up to 1.25 s.
const SENT_AGAIN: Duration = Duration::from_secs(2);

/// A process with a network of its own. Bans and pauses are its only policies, or are beside another.
struct Process(SimulatedRedis, Limiter);

impl Process {
    fn new(redis: &SimulatedRedis, choice: OnStoreFailure, is_alone: bool) -> Self {
        let network = redis.over_another_network();
        let store = RedisStore::builder().simulated(&network).expect("a store");
        let bans = Policy::new("bans", Penalty::after(4).lasting(minutes(5)));
        let others = (!is_alone).then(|| Policy::new("api", TokenBucket::per_second(1_000)));
        let policies = others
            .into_iter()
            .chain([bans, Policy::new("pauses", Pause)]);
        let limiter = policies.fold(Limiter::builder().store(store), |limiter, policy| {
            limiter.policy(policy)
        });
        let limiter = limiter.on_store_failure(choice).build().expect("a limiter");
        Self(network, limiter)
    }

    /// Returns which policy stops a caller. `None`: it is admitted, or the store could not decide.
    async fn stops(&self, caller: &str) -> Option<String> {
        let decision = self.1.check(caller).await.ok()?;
        let mut denied_by = decision.denied_by();
        denied_by.next().map(|policy| policy.name().to_owned())
    }

    /// Bans a caller, pauses a caller, and strikes a caller until it is banned. Returns whether the
    /// store confirmed all.
    async fn states_all(&self) -> bool {
        let banned = self.1.ban("banned", minutes(1)).await;
        let paused = self.1.pause("paused", minutes(1)).await;
        let mut is_confirmed = banned.is_ok() && paused.is_ok();
        for _ in 0..4 {
            let struck = self.1.strike("struck", 1).await;
            is_confirmed &= struck.is_ok_and(|struck| struck.source() == Source::Store);
        }
        is_confirmed
    }

    async fn stops_all(&self, place: &str) {
        for (caller, policy) in [("banned", "bans"), ("paused", "pauses"), ("struck", "bans")] {
            let stops = self.stops(caller).await;
            assert_eq!(stops.as_deref(), Some(policy), "{place}: {caller}");
        }
    }

    async fn stops_none(&self, place: &str) {
        for caller in ["banned", "paused", "struck"] {
            let allowed = self
                .1
                .check(caller)
                .await
                .is_ok_and(|found| found.is_allowed());
            assert!(allowed, "{place}: {caller}");
        }
    }
}

fn cases() -> impl Iterator<Item = (OnStoreFailure, bool)> {
    let with_each = |choice| [(choice, true), (choice, false)];
    CHOICES.into_iter().flat_map(with_each)
}

/// They are stated while Redis is away, and hold on in their process when it is back, at once, and in
/// all others soon.
#[tokio::test(start_paused = true)]
async fn what_is_stated_while_redis_is_away_holds_when_it_is_back() {
    for (choice, is_alone) in cases() {
        let redis = SimulatedRedis::new();
        let [here, there] = [(); 2].map(|()| Process::new(&redis, choice, is_alone));
        here.0.set_connected(false);
        assert!(!here.states_all().await);
        for caller in ["banned", "paused"] {
            let stops = here.stops(caller).await;
            assert!(stops.is_some(), "{choice:?}: {caller} while it is away");
        }
        here.0.set_connected(true);
        sleep(SENT_AGAIN).await;
        here.stops_all("here").await;
        there.stops_all("there").await;
        // The bans end when they were to end.
        sleep(minutes(5)).await;
        here.stops_none("here").await;
        there.stops_none("there").await;
    }
}

/// Redis confirmed them, and no check was denied before it was lost.
#[tokio::test(start_paused = true)]
async fn what_redis_confirmed_is_known_while_it_is_away() {
    for (choice, is_alone) in cases() {
        let here = Process::new(&SimulatedRedis::new(), choice, is_alone);
        assert!(here.states_all().await);
        here.0.set_connected(false);
        here.stops_all(&format!("{choice:?}")).await;
    }
}

/// Another process ended them, and a check has seen it.
#[tokio::test(start_paused = true)]
async fn what_another_process_ended_is_forgotten() {
    for (choice, is_alone) in cases() {
        let redis = SimulatedRedis::new();
        let [here, there] = [(); 2].map(|()| Process::new(&redis, choice, is_alone));
        assert!(here.states_all().await);
        here.stops_all("here").await;
        for caller in ["banned", "paused", "struck"] {
            there.1.reset(caller).await.expect("a reset");
        }
        // A cached denial lasts for a second.
        sleep(SECOND).await;
        here.stops_none("here").await;
        here.0.set_connected(false);
        for caller in ["banned", "paused", "struck"] {
            assert_eq!(here.stops(caller).await, None, "{choice:?}: {caller}");
        }
    }
}

/// This process ends what Redis has not confirmed.
#[tokio::test(start_paused = true)]
async fn what_is_ended_before_redis_is_back_is_not_sent() {
    for (choice, is_alone) in cases() {
        let redis = SimulatedRedis::new();
        let [here, there] = [(); 2].map(|()| Process::new(&redis, choice, is_alone));
        here.0.set_connected(false);
        here.states_all().await;
        assert!(here.1.resume("paused").await.is_err());
        for caller in ["banned", "struck"] {
            assert!(here.1.reset(caller).await.is_err());
        }
        for caller in ["banned", "paused", "struck"] {
            assert_eq!(here.stops(caller).await, None, "{choice:?}: {caller}");
        }
        here.0.set_connected(true);
        sleep(SENT_AGAIN).await;
        here.stops_none("here").await;
        there.stops_none("there").await;
    }
}

/// Each process counts some of the strikes that ban a caller.
#[tokio::test(start_paused = true)]
async fn strikes_of_both_sides_add_up() {
    for (choice, is_alone) in cases() {
        let redis = SimulatedRedis::new();
        let [here, there] = [(); 2].map(|()| Process::new(&redis, choice, is_alone));
        let _ = there.1.strike("ann", 2).await.expect("strikes");
        here.0.set_connected(false);
        let _ = here.1.strike("ann", 2).await;
        here.0.set_connected(true);
        // Its next check states them first. A check that the breaker stops cannot.
        let found = poll(SECOND, || async { here.stops("ann").await }).await;
        assert_eq!(found.as_deref(), Some("bans"), "{choice:?}");
        assert_eq!(there.stops("ann").await.as_deref(), Some("bans"));
    }
}

/// Polls until there is a result.
async fn poll<T, F>(time: Duration, mut look: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + time;
    while Instant::now() < end {
        if let Some(found) = look().await {
            return Some(found);
        }
        sleep(ms(10)).await;
    }
    None
}
