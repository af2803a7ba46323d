//! Permits while a store fails: each is released where it was taken.

use std::pin::Pin;

use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::fake_store::{Does, Switch, limiter, unavailable, unavailable_later};
use crate::support::prelude::*;

const LIFETIME: Duration = Duration::from_secs(30);

fn held() -> Policy {
    Policy::new("held", Concurrency::new(10).lifetime(LIFETIME))
}

fn store() -> Switch {
    Switch::on(&TokioClock::new())
}

/// Returns the free permits of the store itself, and of this process.
async fn free(store: &Switch) -> (u64, u64) {
    (
        left(&store.looking([held()]), "ann").await,
        left(&store.looking_locally([held()]), "ann").await,
    )
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn permits_of_an_outage_are_held_and_released_in_this_process() {
    for failure in [unavailable(), unavailable_later()] {
        let store = store();
        let limiter = limiter(store.clone(), [held()]);
        store.now(failure);
        let mut permits = Vec::new();
        for number in 0..15 {
            let permit = limiter.acquire("ann", Duration::ZERO).await.unwrap();
            assert_eq!(permit.decision().source(), Source::Local);
            assert_eq!(permit.is_allowed(), number < 10);
            permits.push(permit);
        }
        assert_eq!(free(&store).await, (10, 0));
        // The permits are renewed here for as long as they are held.
        sleep(10 * LIFETIME).await;
        assert_eq!(free(&store).await, (10, 0));
        // The store answers again. The permits stay in this process, and are released here.
        store.now(Does::Answers);
        let of_store = limiter.acquire("ann", Duration::ZERO).await.unwrap();
        assert_eq!(of_store.decision().source(), Source::Store);
        assert_eq!(free(&store).await, (9, 0));
        sleep(10 * LIFETIME).await;
        assert_eq!(free(&store).await, (9, 0));
        for left in (5..15).rev() {
            permits.pop();
            let expected = 10_u64.saturating_sub(left);
            assert_eq!(free(&store).await, (9, expected));
        }
        drop(permits);
        drop(of_store);
        settle().await;
        assert_eq!(free(&store).await, (10, 10));
    }
}

/// However long the outage lasted, the reply to any check ends the pause.
#[tokio::test(start_paused = true)]
async fn the_first_reply_after_an_outage_ends_the_pause_of_a_failed_statement() {
    let lifetime = Duration::from_secs(3_600);
    let held = || Policy::new("held", Concurrency::new(10).lifetime(lifetime));
    for failure in [unavailable(), unavailable_later(), Does::IsSilent] {
        // Of a silent store, the reply often comes while a statement is under way.
        let steps = (0..100).map(|step| 10_000 + 37 * step);
        for outage in [1_000, 100_000, 1_000_000].into_iter().chain(steps) {
            let outage = Duration::from_millis(outage);
            let store = store();
            let limiter = limiter(Guarded::new(store.clone()), [held()]);
            let acquire = |key| limiter.acquire(key, Duration::ZERO);
            let permits = [acquire("ann").await, acquire("ann").await];
            store.now(failure.clone());
            drop(permits);
            sleep(outage).await;
            store.now(Does::Answers);
            let looking = store.looking([held()]);
            assert_eq!(left(&looking, "ann").await, 8, "{failure:?}, {outage:?}");
            let of_store = acquire("bob").await.unwrap();
            assert_eq!(of_store.decision().source(), Source::Store);
            if matches!(failure, Does::IsSilent) {
                // Until the statement that was under way has failed.
                sleep(Duration::from_millis(51)).await;
            }
            settle().await;
            assert_eq!(left(&looking, "ann").await, 10, "{failure:?}, {outage:?}");
        }
    }
}

/// The pause has not begun then, and no other reply may come for a long time.
#[tokio::test(start_paused = true)]
async fn a_reply_right_after_a_failed_statement_ends_its_pause() {
    /// Holds back the next answers, as many as the number says. Statements among them fail.
    #[derive(Debug)]
    struct Gated {
        memory: MemoryStore,
        to_hold: Arc<AtomicU64>,
        gates: Arc<Mutex<Vec<oneshot::Sender<()>>>>,
    }
    impl Store for Gated {
        fn check(&self, check: &Check<'_>) -> Answer<Decision> {
            if self.to_hold.load(Ordering::Relaxed) == 0 {
                return self.memory.check(check);
            }
            self.to_hold.fetch_sub(1, Ordering::Relaxed);
            let (open, opened) = oneshot::channel();
            self.gates.lock().unwrap().push(open);
            let answer = match check.operation() {
                Operation::Renew => Err(StoreError::unavailable("it is away")),
                _ => match self.memory.check(check) {
                    Answer::Now(answer) => answer,
                    Answer::Later(_) => unreachable!("memory answers at once"),
                },
            };
            Answer::Later(Box::pin(async move {
                opened.await.unwrap();
                answer
            }))
        }
        fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
            self.memory.reset(charges)
        }
    }
    let memory = MemoryStore::builder().clock(TokioClock::new());
    let store = Gated {
        memory: memory.build(),
        to_hold: Arc::default(),
        gates: Arc::default(),
    };
    let (to_hold, gates) = (Arc::clone(&store.to_hold), Arc::clone(&store.gates));
    let looking = limiter(store.memory.clone(), [held()]);
    let limiter = limiter(store, [held()]);
    let permit = limiter.acquire("ann", Duration::ZERO).await.unwrap();
    to_hold.store(2, Ordering::Relaxed);
    drop(permit);
    let check = tokio::spawn(async move { limiter.peek("bob").await });
    settle().await;
    assert_eq!(left(&looking, "ann").await, 9);
    let gates = std::mem::take(&mut *gates.lock().unwrap());
    assert_eq!(gates.len(), 2);
    for gate in gates {
        gate.send(()).unwrap();
    }
    assert!(check.await.unwrap().unwrap().is_allowed());
    settle().await;
    assert_eq!(left(&looking, "ann").await, 10);
}

/// A store whose replies end pauses in vain does not get many more statements for that.
#[tokio::test(start_paused = true)]
async fn statements_that_fail_beside_replies_are_seldom_made_again() {
    #[derive(Debug)]
    struct WithoutRenewals(MemoryStore, Arc<AtomicU64>);
    impl Store for WithoutRenewals {
        fn check(&self, check: &Check<'_>) -> Answer<Decision> {
            if check.operation() == Operation::Renew {
                self.1.fetch_add(1, Ordering::Relaxed);
                return Answer::Now(Err(StoreError::unavailable("its server is down")));
            }
            self.0.check(check)
        }
        fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
            self.0.reset(charges)
        }
    }
    let statements = Arc::new(AtomicU64::new(0));
    let memory = MemoryStore::builder().clock(TokioClock::new());
    let limiter = limiter(
        WithoutRenewals(memory.build(), Arc::clone(&statements)),
        [held()],
    );
    drop(limiter.acquire("ann", Duration::ZERO).await.unwrap());
    let started = Instant::now();
    while started.elapsed() < LIFETIME {
        assert!(limiter.peek("bob").await.is_ok());
        sleep(Duration::from_millis(7)).await;
    }
    // Without a reply, pauses of at most 100, 200, 400, 800, 1,600 and then 3,000 ms.
    let statements = statements.load(Ordering::Relaxed);
    assert!((10..40).contains(&statements), "{statements}");
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Permit, StoreError>> + 'a>>;

/// The caller leaves after a number of polls, in each way in which a store may answer.
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_at_any_point_holds_nothing() {
    let ways = [
        Does::Answers,
        Does::AnswersLater(3),
        Does::AnswersAfter(Duration::from_millis(20)),
        Does::AnswersAfter(Duration::from_millis(70)),
        unavailable(),
        unavailable_later(),
        Does::IsSilent,
        Does::ActsAndIsSilent,
    ];
    let bucket = || Policy::new("bucket", TokenBucket::per_minute(60).burst(1));
    for way in ways {
        for polls in 1..12 {
            for waits in [Duration::ZERO, Duration::from_secs(5)] {
                let store = store();
                let guarded = Guarded::new(store.clone()).timeout(Duration::from_millis(50));
                let limiter = limiter(guarded, [held(), bucket()]);
                // Another caller has the only token of the bucket, in both stores.
                let others = [
                    store.looking([bucket()]).check("ann").await.unwrap(),
                    store
                        .looking_locally([bucket()])
                        .check("ann")
                        .await
                        .unwrap(),
                ];
                assert!(others.iter().all(|other| other.is_allowed()));
                store.now(way.clone());
                let mut waiting: Option<Waiting<'_>> =
                    Some(Box::pin(limiter.acquire("ann", waits)));
                for _ in 0..polls {
                    let Some(future) = waiting.as_mut() else {
                        break;
                    };
                    let waker = Waker::noop();
                    let polled = future.as_mut().poll(&mut Context::from_waker(waker));
                    if let Poll::Ready(permit) = polled {
                        drop(permit.unwrap());
                        waiting = None;
                    }
                    sleep(Duration::from_millis(17)).await;
                }
                let is_gone = waiting.is_some();
                drop(waiting);
                settle().await;
                store.now(Does::Answers);
                sleep(Duration::from_millis(200)).await;
                settle().await;
                let what = format!("{way:?}, {polls} polls, waits {waits:?}, gone: {is_gone}");
                // A permit that no caller can use is free after its lifetime.
                if !matches!(way, Does::ActsAndIsSilent) {
                    assert_eq!(free(&store).await, (10, 10), "{what}");
                }
                sleep(LIFETIME).await;
                assert_eq!(free(&store).await, (10, 10), "{what}");
                for buckets in [store.looking([bucket()]), store.looking_locally([bucket()])] {
                    assert_eq!(left(&buckets, "ann").await, 1, "{what}");
                }
            }
        }
    }
}

/// Waiters come, stay and leave while the store fails and recovers.
#[tokio::test(start_paused = true)]
async fn no_permit_leaks_however_the_store_flaps() {
    let mut random = Random::new();
    for _ in 0..30 {
        let store = store();
        let guarded = Guarded::new(store.clone()).timeout(Duration::from_millis(50));
        let limiter = limiter(guarded, [held()]);
        let mut permits: Vec<Permit> = Vec::new();
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        for _ in 0..300 {
            match random.below(8) {
                0 => store.now(match random.below(5) {
                    0 => Does::AnswersLater(2),
                    1 => Does::AnswersAfter(Duration::from_millis(random.between(1, 99))),
                    2 => unavailable(),
                    3 => unavailable_later(),
                    _ => Does::Answers,
                }),
                1 if !permits.is_empty() => {
                    drop(permits.swap_remove(random.below(permits.len() as u64) as usize));
                }
                2 if !waiting.is_empty() => {
                    drop(waiting.swap_remove(random.below(waiting.len() as u64) as usize));
                }
                3 => sleep(Duration::from_millis(random.between(1, 300))).await,
                _ => {
                    let wait = Duration::from_millis(random.below(2) * random.below(5_000));
                    let mut future: Waiting<'_> = Box::pin(limiter.acquire("ann", wait));
                    let waker = Waker::noop();
                    let mut context = Context::from_waker(waker);
                    match future.as_mut().poll(&mut context) {
                        Poll::Ready(permit) => permits.push(permit.unwrap()),
                        Poll::Pending => waiting.push(future),
                    }
                }
            }
            let mut context = Context::from_waker(Waker::noop());
            waiting.retain_mut(|future| match future.as_mut().poll(&mut context) {
                Poll::Ready(permit) => {
                    permits.push(permit.unwrap());
                    false
                }
                Poll::Pending => true,
            });
            let of = |source: Source| {
                let held = permits.iter().filter(|permit| permit.is_allowed());
                held.filter(|permit| permit.decision().source() == source)
                    .count()
            };
            assert!(of(Source::Local) <= 10 && of(Source::Store) <= 10);
        }
        store.now(Does::Answers);
        drop(waiting);
        drop(permits);
        settle().await;
        assert_eq!(
            left(&store.looking_locally([held()]), "ann").await,
            10,
            "kept in this process"
        );
        sleep(LIFETIME + Duration::from_secs(1)).await;
        assert_eq!(free(&store).await, (10, 10));
    }
}
