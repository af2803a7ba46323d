//! Permits while a store fails: each is released where it was taken.

use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::fake_store::{Does, Switch, unavailable, unavailable_later};
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
        let limiter = Limiter::new(store.clone(), held());
        store.now(failure);
        let mut permits = Vec::new();
        for number in 0..15 {
            let permit = acquire(&limiter, "ann", ms(0)).await;
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
        let of_store = acquire(&limiter, "ann", ms(0)).await;
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
            let outage = ms(outage);
            let store = store();
            let limiter = Limiter::new(Guarded::new(store.clone()), held());
            let acquire = async |key| acquire(&limiter, key, ms(0)).await;
            let permits = [acquire("ann").await, acquire("ann").await];
            store.now(failure.clone());
            drop(permits);
            sleep(outage).await;
            store.now(Does::Answers);
            let looking = store.looking([held()]);
            assert_eq!(left(&looking, "ann").await, 8, "{failure:?}, {outage:?}");
            let of_store = acquire("bob").await;
            assert_eq!(of_store.decision().source(), Source::Store);
            if matches!(failure, Does::IsSilent) {
                // Until the statement that was under way has failed.
                sleep(ms(51)).await;
            }
            settle().await;
            assert_eq!(left(&looking, "ann").await, 10, "{failure:?}, {outage:?}");
        }
    }
}

/// The pause has not begun then, and no other reply may come for a long time.
#[tokio::test(start_paused = true)]
async fn a_reply_right_after_a_failed_statement_ends_its_pause() {
    // Holds back the next answers, as many as the number says. Statements among them fail.
    let (to_hold, gates) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let (left_to_hold, held_back) = (Arc::clone(&to_hold), Arc::clone(&gates));
    let memory = paused_store();
    let store = wrapped(memory.clone(), move |memory: &MemoryStore, check| {
        if left_to_hold.load(Ordering::Relaxed) == 0 {
            return memory.check(check);
        }
        left_to_hold.fetch_sub(1, Ordering::Relaxed);
        let (open, opened) = oneshot::channel::<()>();
        held_back.lock().unwrap().push(open);
        let answer = match check.operation() {
            Operation::Renew => Answer::Now(Err(StoreError::unavailable("it is away"))),
            _ => memory.check(check),
        };
        later(answer, async move { opened.await.unwrap() })
    });
    let looking = Limiter::new(memory, held());
    let limiter = Limiter::new(store, held());
    let permit = acquire(&limiter, "ann", ms(0)).await;
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
    let statements = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&statements);
    let store = wrapped(paused_store(), move |memory, check| {
        if check.operation() == Operation::Renew {
            counted.fetch_add(1, Ordering::Relaxed);
            return Answer::Now(Err(StoreError::unavailable("its server is down")));
        }
        memory.check(check)
    });
    let limiter = Limiter::new(store, held());
    drop(acquire(&limiter, "ann", ms(0)).await);
    let started = Instant::now();
    while started.elapsed() < LIFETIME {
        assert!(limiter.peek("bob").await.is_ok());
        sleep(ms(7)).await;
    }
    // Without a reply, pauses of at most 100, 200, 400, 800, 1,600 and then 3,000 ms.
    let statements = statements.load(Ordering::Relaxed);
    assert!((10..40).contains(&statements), "{statements}");
}

/// Waiters come, stay and leave while the store fails and recovers.
#[tokio::test(start_paused = true)]
async fn no_permit_leaks_however_the_store_flaps() {
    let mut random = Random::new();
    for _ in 0..30 {
        let store = store();
        let guarded = Guarded::new(store.clone()).timeout(ms(50));
        let limiter = Limiter::new(guarded, held());
        let mut permits: Vec<Permit> = Vec::new();
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        for _ in 0..300 {
            match random.below(8) {
                0 => store.now(match random.below(7) {
                    0 => Does::AnswersLater(2),
                    1 => Does::AnswersAfter(ms(random.between(1, 99))),
                    2 => unavailable(),
                    3 => unavailable_later(),
                    4 => Does::IsSilent,
                    5 => Does::ActsAndIsSilent,
                    _ => Does::Answers,
                }),
                1 if !permits.is_empty() => {
                    drop(permits.swap_remove(random.below(permits.len() as u64) as usize));
                }
                2 if !waiting.is_empty() => {
                    drop(waiting.swap_remove(random.below(waiting.len() as u64) as usize));
                }
                3 => sleep(ms(random.between(1, 300))).await,
                _ => {
                    let wait = ms(random.below(2) * random.below(5_000));
                    let mut future: Waiting<'_> = Box::pin(limiter.acquire("ann", wait));
                    match poll(&mut future) {
                        Poll::Ready(permit) => permits.push(permit.unwrap()),
                        Poll::Pending => waiting.push(future),
                    }
                }
            }
            waiting.retain_mut(|future| match poll(future) {
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
        let kept = 10 - free(&store).await.1;
        assert_eq!(kept, 0, "kept in this process");
        sleep(LIFETIME + Duration::from_secs(1)).await;
        assert_eq!(free(&store).await, (10, 10));
    }
}
