//! Units of waiters that leave are granted once, though other waiters already wait behind.

use tokio::time::{Instant, sleep};

use super::fixtures::whole_ms;
use crate::support::prelude::*;

/// Longer than any wait in these tests.
const LONG: Duration = ms(1_000_000);

fn one_each_100_ms() -> [Quota; 2] {
    let bucket = TokenBucket::per_second(10).burst(1);
    let queue = LeakyBucket::per_second(10).queue(1_000);
    [bucket.try_into().unwrap(), queue.try_into().unwrap()]
}

/// Two limiters with the same buckets, which know as little of each other as two processes do:
/// what a process knows belongs to its own store.
fn two_processes(quota: Quota) -> [Limiter; 2] {
    let store = Arc::new(wrapped(paused_store(), |store, check| store.check(check)));
    [(); 2].map(|()| Limiter::new(Arc::clone(&store), quota))
}

/// Returns when these callers are admitted.
async fn moments<'a>(started: Instant, waiting: impl IntoIterator<Item = Waiting<'a>>) -> Vec<u64> {
    let mut moments = Vec::new();
    for waiting in waiting {
        assert!(waiting.await.unwrap().is_allowed());
        moments.push(whole_ms(started.elapsed()));
    }
    moments
}

/// Returns when the callers of these limiters have their turns. They come in this order, behind one
/// that leaves once all of them wait.
async fn turns_after_one_left([leaves, waiting @ ..]: [&Limiter; 5]) -> Vec<u64> {
    let started = Instant::now();
    assert!(acquire(leaves, "ann", ms(0)).await.is_allowed());
    let leaves = come(leaves, LONG);
    let waiting = waiting.map(|limiter| come(limiter, LONG));
    drop(leaves);
    let tasks = waiting.map(|waiting| {
        tokio::spawn(async move {
            assert!(waiting.await.unwrap().is_allowed());
            whole_ms(started.elapsed())
        })
    });
    let mut moments = Vec::new();
    for task in tasks {
        moments.push(task.await.unwrap());
    }
    moments
}

/// A waiter moves up to the time of one of its process that left, also past one of another process.
/// It does not take the time of that one. Limiters on one store of this process stand in one line.
#[tokio::test(start_paused = true)]
async fn a_waiter_moves_up_past_another_process_only_to_a_time_of_its_own() {
    for quota in one_each_100_ms() {
        let [here, there] = two_processes(quota);
        let turns = turns_after_one_left([&here, &there, &here, &there, &here]).await;
        assert_eq!(turns, [200, 100, 400, 300]);
        let store = paused_store();
        let [one, other] = [(); 2].map(|()| Limiter::new(store.clone(), quota));
        let turns = turns_after_one_left([&one, &other, &one, &other, &one]).await;
        assert_eq!(turns, [100, 200, 300, 400]);
    }
}

/// Units are refunded if no other process reserved behind them.
#[tokio::test(start_paused = true)]
async fn the_last_caller_of_all_processes_refunds_what_it_reserved() {
    for quota in one_each_100_ms() {
        let [here, there] = two_processes(quota);
        assert!(acquire(&here, "ann", ms(0)).await.is_allowed());
        let waiting = [&here, &there, &here, &there, &here].map(|limiter| come(limiter, LONG));
        let mut waiting = Vec::from(waiting);
        for taken_ms in [500, 400, 300, 200, 100] {
            drop(waiting.pop());
            assert_eq!(taken(&here).await, ms(taken_ms));
        }
    }
}

/// A caller that comes after another one left behind whom one of another process waits. And after
/// a lost reply, the units may belong to a waiter of another process.
#[tokio::test(start_paused = true)]
async fn a_time_that_may_not_have_been_refunded_stays_taken() {
    for quota in one_each_100_ms() {
        let [here, there] = two_processes(quota);
        let started = Instant::now();
        assert!(acquire(&here, "ann", ms(0)).await.is_allowed());
        let (leaves, first) = (come(&here, LONG), come(&there, LONG));
        drop(leaves);
        let behind = [first, come(&here, LONG), come(&there, LONG)];
        assert_eq!(moments(started, behind).await, [200, 300, 400]);

        let lost = wrapped(paused_store(), |store, check| match store.check(check) {
            _ if check.operation() == Operation::Refund => {
                Answer::Now(Err(StoreError::unavailable("lost")))
            }
            answer => answer,
        });
        let lost = Arc::new(lost);
        let [here, there] = [(); 2].map(|()| Limiter::new(Arc::clone(&lost), quota));
        let started = Instant::now();
        assert!(acquire(&here, "ann", ms(0)).await.is_allowed());
        drop(come(&here, LONG));
        let behind = [come(&there, LONG), come(&here, LONG)];
        assert_eq!(moments(started, behind).await, [100, 200]);
    }
}

/// A store whose answers come up to so many milliseconds late and out of order.
fn late(late_ms: u64) -> Arc<impl Store> {
    let random = Mutex::new(Random::new());
    Arc::new(wrapped(
        paused_store(),
        move |store: &MemoryStore, check| {
            let late = random.lock().unwrap().below(1 + late_ms);
            later(store.check(check), async move {
                if late > 0 {
                    sleep(ms(late)).await;
                }
            })
        },
    ))
}

/// Lets callers of some processes come and leave at random. Admitted callers are an interval
/// apart. With one process and no reply in flight, nothing stays taken.
async fn come_and_leave(random: &mut Random, quota: Quota, processes: u64, late_ms: u64) {
    let store = late(late_ms);
    let limiters = (0..processes).map(|_| Limiter::new(Arc::clone(&store), quota));
    let limiters: Vec<_> = limiters.collect();
    let (sender, mut admitted) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for _ in 0..400 {
        match random.below(8) {
            0..=3 => {
                let limiter = limiters[random.below(processes) as usize].clone();
                let sender = sender.clone();
                waiting.push(tokio::spawn(async move {
                    assert!(acquire(&limiter, "ann", LONG).await.is_allowed());
                    sender.send(Instant::now()).unwrap();
                }));
            }
            4 | 5 if !waiting.is_empty() => {
                let place = random.below(waiting.len() as u64) as usize;
                waiting.swap_remove(place).abort();
            }
            6 => tokio::task::yield_now().await,
            _ => sleep(ms(random.below(60))).await,
        }
    }
    drop(sender);
    let mut before: Option<Instant> = None;
    while let Some(at) = admitted.recv().await {
        let since = before.map_or(ms(100), |before| at - before);
        assert!(since >= ms(70), "{since:?} after the one before");
        before = Some(at);
    }
    sleep(ms(1_000)).await;
    let taken = taken(&limiters[0]).await;
    let may_stay = processes > 1 || late_ms > 0;
    assert!(may_stay || taken.is_zero(), "{taken:?} stay taken");
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_and_leave_are_never_admitted_twice() {
    let mut random = Random::new();
    for (processes, late_ms) in [(1, 0), (1, 29), (2, 29), (3, 29)] {
        for quota in one_each_100_ms() {
            for _ in 0..20 {
                come_and_leave(&mut random, quota, processes, late_ms).await;
            }
        }
    }
}

/// Moments come before answers do.
#[tokio::test(start_paused = true)]
async fn a_long_queue_that_leaves_at_once_is_refunded_in_full() {
    let limiter = Limiter::new(late(29), LeakyBucket::per_second(1_000).queue(1_000));
    let mut line = JoinSet::new();
    for _ in 0..500 {
        let limiter = limiter.clone();
        line.spawn(async move { limiter.acquire("ann", ms(1_000)).await });
    }
    sleep(ms(40)).await;
    line.shutdown().await;
    sleep(ms(100)).await;
    assert_eq!(taken(&limiter).await, ms(0), "a wait is not refunded");
}
