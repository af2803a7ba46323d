//! Pauses: who is stopped by one, for how long, and what that costs.

use tokio::time::{Instant, sleep};
use tower_throttle::{Algorithm, DenialReason, control::Caller};

#[cfg(feature = "testing")]
use crate::stores::simulated_store;
use crate::support::{prelude::*, web::Down};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3_600);

fn pauses() -> Policy {
    Policy::new("pauses", Pause)
}

fn paused_limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let policies = policies.into_iter().chain([pauses()]);
    limiter_of(paused_store(), policies)
}

/// Returns when each of the callers was admitted, in milliseconds, in the order of their arrival;
/// `None` for those that were denied.
async fn admissions(limiter: &Limiter, callers: usize, wait: Duration) -> Vec<Option<u64>> {
    let begin = Instant::now();
    let mut waiting = JoinSet::new();
    for caller in 0..callers {
        let limiter = limiter.clone();
        waiting.spawn(async move {
            let permit = acquire(&limiter, "partner", wait).await;
            let at = begin.elapsed().as_millis() as u64;
            let admitted = permit.is_allowed().then_some(at);
            if admitted.is_some() {
                // Its call.
                sleep(ms(100)).await;
            }
            (caller, admitted)
        });
    }
    let mut admissions = waiting.join_all().await;
    admissions.sort_unstable();
    admissions.into_iter().map(|(_, at)| at).collect()
}

async fn remaining(limiter: &Limiter) -> Vec<u64> {
    left_of(&peek(limiter, "partner").await)
}

async fn retry_after(limiter: &Limiter) -> Option<Duration> {
    check(limiter, "partner").await.retry_after()
}

/// Pauses the partner now and then.
fn pause_each(limiter: &Limiter, after: Duration, times: usize, lasts: Duration) {
    let limiter = limiter.clone();
    tokio::spawn(async move {
        for _ in 0..times {
            sleep(after).await;
            limiter.pause("partner", lasts).await.unwrap();
        }
    });
}

#[tokio::test(start_paused = true)]
async fn the_longest_pause_holds_until_it_ends_or_is_ended() {
    let limiter = paused_limiter([]);
    for pause in [5 * SECOND, SECOND, 8 * SECOND, Duration::ZERO] {
        limiter.pause("partner", pause).await.unwrap();
    }
    assert_eq!(retry_after(&limiter).await, Some(8 * SECOND + ms(1)));
    assert!(check(&limiter, "another").await.is_allowed());
    sleep(8 * SECOND).await;
    assert!(retry_after(&limiter).await.is_some());
    sleep(ms(1)).await;
    assert_eq!(retry_after(&limiter).await, None);

    limiter.pause("partner", Duration::MAX).await.unwrap();
    assert!(retry_after(&limiter).await.is_some());
    limiter.resume("partner").await.unwrap();
    assert_eq!(retry_after(&limiter).await, None);
}

/// Every kind of wait, for ten calls a second, and how many of them may come within one: windows of
/// the clock admit more around their edges.
fn paces() -> Vec<(Policy, usize)> {
    let bucket = TokenBucket::per_second(10).burst(1);
    vec![
        (
            Policy::new("queue", LeakyBucket::per_second(10).queue(100)),
            999,
        ),
        (
            Policy::new("leaky", LeakyBucket::per_second(10).capacity(1)),
            999,
        ),
        (Policy::new("bucket", bucket), 999),
        (Policy::new("held", bucket).hold_for(LONG), 999),
        (
            Policy::new("at once", TokenBucket::new(10, SECOND).refill_at_once()),
            999,
        ),
        (Policy::new("window", FixedWindow::new(10, SECOND)), 999),
        (
            Policy::new("aligned", FixedWindow::new(10, SECOND).aligned()),
            20,
        ),
        (Policy::new("estimate", SlidingWindow::new(10, SECOND)), 20),
        (Policy::new("log", SlidingLog::new(10, SECOND)), 999),
        (Policy::new("permits", Concurrency::new(1)), 999),
    ]
}

/// Two limiters of one process in memory, and of two processes on one Redis.
fn pairs(pace: &Policy) -> Vec<[Limiter; 2]> {
    let of = |store: Arc<dyn Store>| limiter_of(store, [pace.clone(), pauses()]);
    let here = of(Arc::new(paused_store()));
    vec![
        [here.clone(), here],
        #[cfg(feature = "testing")]
        {
            let redis = tower_throttle::testing::SimulatedRedis::new();
            [(); 2].map(|()| of(Arc::new(simulated_store(&redis))))
        },
    ]
}

/// A pause that begins while callers have their places already, under each kind of wait.
#[tokio::test(start_paused = true)]
async fn waiters_are_stopped_by_a_pause_that_began_later() {
    for (pace, most) in paces() {
        for [waiting, pausing] in pairs(&pace) {
            pause_each(&pausing, ms(1_550), 1, 3 * SECOND);
            let admissions = admissions(&waiting, 40, LONG).await;
            let mut times: Vec<u64> = admissions.into_iter().map(Option::unwrap).collect();
            times.sort_unstable();
            let in_pause = times.iter().filter(|at| (1_551..4_550).contains(*at));
            assert_eq!(in_pause.count(), 0, "{pace:?}: {times:?}");
            let is_soon = times[14] < 1_551 && times[39] < 7_700;
            assert!(is_soon, "{pace:?}: {times:?}");
            let is_paced = times
                .windows(most + 1)
                .all(|calls| calls[most] - calls[0] >= 999);
            assert!(is_paced, "{pace:?}: {times:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_that_were_stopped_are_charged_once() {
    let pace = Policy::new("pace", LeakyBucket::per_second(10).queue(100));
    let limiter = paused_limiter([pace, Policy::new("day", FixedWindow::per_day(1_000))]);
    pause_each(&limiter, SECOND, 4, ms(700));
    let admissions = admissions(&limiter, 40, LONG).await;
    assert!(admissions.iter().all(Option::is_some));
    assert_eq!(remaining(&limiter).await[1..], [960, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_beyond_the_deadline_denies_with_its_end() {
    let limiter = paused_limiter([Policy::new("pace", LeakyBucket::per_second(10).queue(100))]);
    limiter.pause("partner", 5 * SECOND).await.unwrap();
    let denied = acquire(&limiter, "partner", 4 * SECOND).await;
    assert_eq!(denied.decision().retry_after(), Some(5 * SECOND + ms(1)));
    limiter.resume("partner").await.unwrap();

    pause_each(&limiter, ms(150), 1, 5 * SECOND);
    let begin = Instant::now();
    let admissions = admissions(&limiter, 5, SECOND).await;
    assert_eq!(admissions, [Some(0), Some(100), None, None, None]);
    assert!(begin.elapsed() <= SECOND, "they are denied at their turns");
}

/// What an operator ends ends for those that wait already, in the order in which they came.
#[tokio::test(start_paused = true)]
async fn waiters_are_admitted_when_a_pause_is_ended_early() {
    for (pace, _) in paces() {
        for (number, [here, other]) in pairs(&pace).into_iter().enumerate() {
            // In memory, both are of this process.
            for (ending, first) in [(&here, 300), (&other, [300, 2_001][number])] {
                here.pause("partner", 2 * SECOND).await.unwrap();
                tokio::spawn({
                    let ending = ending.clone();
                    async move {
                        sleep(ms(300)).await;
                        ending.resume("partner").await.unwrap();
                    }
                });
                let admissions = admissions(&here, 3, LONG).await;
                let times: Vec<u64> = admissions.into_iter().map(Option::unwrap).collect();
                let are_soon = times[0] == first && times[2] <= first + 200;
                assert!(are_soon && times.is_sorted(), "{pace:?}: {times:?}");
                // Until all units are back.
                sleep(2 * SECOND).await;
            }
        }
    }
}

/// A reset returns all units to those that wait, too. (Places in a bucket that refills evenly are
/// reserved, and stay where they are.)
#[tokio::test(start_paused = true)]
async fn waiters_are_admitted_when_their_bucket_is_reset() {
    for pace in [
        Policy::new("at once", TokenBucket::per_hour(2).refill_at_once()),
        Policy::new("window", FixedWindow::per_hour(2)),
        Policy::new("aligned", FixedWindow::per_hour(2).aligned()),
        Policy::new("estimate", SlidingWindow::per_hour(2)),
        Policy::new("log", SlidingLog::per_hour(2)),
    ] {
        for [limiter, _] in pairs(&pace) {
            assert!(limiter.check_n("partner", 2).await.unwrap().is_allowed());
            tokio::spawn({
                let limiter = limiter.clone();
                async move {
                    sleep(ms(300)).await;
                    limiter.reset("partner").await.unwrap();
                }
            });
            let admissions = admissions(&limiter, 3, 4 * LONG).await;
            let times: Vec<u64> = admissions.into_iter().map(Option::unwrap).collect();
            assert!(
                times[..2].iter().all(|at| (300..302).contains(at)),
                "{pace:?}: {times:?}"
            );
            assert!(times[2] > 1_000_000, "{pace:?}: {times:?}");
        }
    }
}

/// A permit is held until its request ends, whatever an operator does.
#[tokio::test(start_paused = true)]
async fn a_reset_admits_no_waiter_for_a_permit_that_is_held() {
    for [limiter, _] in pairs(&Policy::new("permits", Concurrency::new(2))) {
        let held = limiter.acquire_n("partner", 2, ms(0)).await.unwrap();
        let operator = limiter.clone();
        tokio::spawn(async move {
            sleep(ms(300)).await;
            operator.reset("partner").await.unwrap();
            let another = acquire(&operator, "partner", ms(0)).await;
            assert!(!another.is_allowed());
            sleep(10 * SECOND).await;
            drop(held);
        });
        let admissions = admissions(&limiter, 3, LONG).await;
        assert_eq!(admissions, [Some(10_300), Some(10_300), Some(10_400)]);
    }
}

/// A waiting layer stops as a limiter does, and a pause is no ban.
#[tokio::test(start_paused = true)]
async fn a_layer_waits_for_the_end_of_a_pause() {
    let store = paused_store();
    let layer = |wait: Duration| {
        let layer = RateLimitLayer::builder().store(store.clone());
        let pauses = pauses().key(key::global());
        layer.policy(pauses).wait_up_to(wait).build().unwrap()
    };
    let waiting = layer(10 * SECOND);
    let request = http::Request::new(());
    let buckets = waiting.buckets(&RequestHead::from(&request)).unwrap();
    buckets.pause(3 * SECOND).await.unwrap();

    let denied = ask(&layer(SECOND), plain());
    assert_eq!(denied.status.as_u16(), 429);
    assert_eq!(denied.number("retry-after"), 4);
    assert_eq!(denied.reason, Some(DenialReason::QuotaExceeded));
    let begin = Instant::now();
    let service = waiting.layer(tower::service_fn(hello));
    assert_eq!(service.oneshot(plain()).await.unwrap().status(), 200);
    assert_eq!(begin.elapsed(), 3 * SECOND + ms(1));

    // Nor does the wait in a queue count, before the pause and after it.
    let pace = Policy::new("pace", LeakyBucket::per_second(1).capacity(1).queue(9));
    let queued = RateLimitLayer::builder()
        .store(store.clone())
        .policy(pace.key(key::global()));
    let queued = queued
        .policy(pauses().key(key::global()))
        .wait_up_to(2 * SECOND)
        .build();
    let service = queued.unwrap().layer(tower::service_fn(hello));
    let calls: JoinSet<_> = (0..5).map(|_| service.clone().oneshot(plain())).collect();
    sleep(ms(3_500)).await;
    buckets.pause(SECOND).await.unwrap();
    let all = calls.join_all().await;
    assert!(
        all.iter()
            .all(|response| response.as_ref().unwrap().status() == 200)
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_counted_and_shown() {
    let limiter = paused_limiter([]);
    for _ in 0..3 {
        limiter.pause("partner", SECOND).await.unwrap();
    }
    let seen = limiter.metrics();
    assert_eq!(seen.bans().collect::<Vec<_>>(), [("pauses", 1)]);
    let caller = Caller::parse(&["partner"]).unwrap();
    let seen = limiter.inspect().look_up(&caller, None).await;
    assert!(seen[0].banned_by_policy_until().is_some());
}

#[tokio::test(start_paused = true)]
async fn pauses_and_penalties_do_not_touch_each_other() {
    let limiter = paused_limiter([Policy::new("bans", Penalty::after(3))]);
    limiter.pause("partner", SECOND).await.unwrap();
    assert_eq!(remaining(&limiter).await, [3, 0]);
    limiter.resume("partner").await.unwrap();
    limiter.ban("partner", SECOND).await.unwrap();
    assert_eq!(remaining(&limiter).await, [0, 1]);
    limiter.resume("partner").await.unwrap();
    assert_eq!(remaining(&limiter).await, [0, 1], "a ban stays");

    let of = |policy| Limiter::new(MemoryStore::new(), policy);
    let bans = of(Policy::new("bans", Penalty::after(3)));
    let pace = of(Policy::new("pace", FixedWindow::per_day(1)));
    let pauses_only = of(pauses());
    for error in [
        bans.pause("partner", SECOND).await.unwrap_err(),
        pace.pause("partner", SECOND).await.unwrap_err(),
        pauses_only.ban("partner", SECOND).await.unwrap_err(),
        pauses_only.debit("partner", 1).await.unwrap_err(),
    ] {
        assert!(error.is_unsupported(), "{error:?}");
    }
    for (policy, code) in [
        (pauses().cost(1), "cost-of-penalty"),
        (pauses().strike_on_denial(), "cannot-strike"),
        (pauses().hold_for(SECOND), "cannot-hold"),
        (pauses().lease(), "cannot-lease"),
    ] {
        let build = Limiter::builder().policy(policy).build();
        assert_eq!(build.unwrap_err().code(), code);
    }
    let quota: Quota = "pause".parse().unwrap();
    assert_eq!(quota.algorithm(), Algorithm::Pause);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_fails_a_pause_holds_in_its_process() {
    let limiter = limiter_of(Down, [pauses()]);
    assert!(limiter.pause("partner", SECOND).await.is_err());
    let denied = check(&limiter, "partner").await;
    assert!(!denied.is_allowed() && denied.source() == Source::Local);
}
