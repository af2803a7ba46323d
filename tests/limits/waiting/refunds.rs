//! Units of waiters that leave are granted once, though other waiters already wait behind.

use tokio::time::Instant;

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
