//! Units of waiters that leave are granted once, though other waiters already wait behind.

use tokio::time::{Instant, sleep};

use super::fixtures::whole_ms;
use crate::support::prelude::*;

fn one_each_100_ms() -> [Quota; 2] {
    let bucket = TokenBucket::per_second(10).burst(1);
    let queue = LeakyBucket::per_second(10).queue(1_000);
    [bucket.try_into().unwrap(), queue.try_into().unwrap()]
}

/// A store of one process: it shares buckets with others, and nothing that this process knows.
#[derive(Clone, Debug)]
struct OfOneProcess(MemoryStore);

impl Store for OfOneProcess {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.0.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.0.reset(charges)
    }
}

/// Two limiters with the same buckets, which know as little of each other as two processes do.
fn two_processes(quota: Quota) -> [Limiter; 2] {
    let store = OfOneProcess(paused_store());
    [(); 2].map(|()| Limiter::new(store.clone(), quota))
}

/// Returns when the callers of these limiters have their turns. They come in this order, behind one
/// that leaves once all of them wait.
async fn turns_after_one_left([leaves, waiting @ ..]: [&Limiter; 5]) -> Vec<u64> {
    let started = Instant::now();
    assert!(leaves.acquire("ann", ms(0)).await.unwrap().is_allowed());
    let come = |limiter: &Limiter| {
        let limiter = limiter.clone();
        let mut future = Box::pin(async move {
            let permit = limiter.acquire("ann", ms(10_000)).await;
            assert!(permit.unwrap().is_allowed());
            whole_ms(started.elapsed())
        });
        assert!(poll(&mut future).is_pending());
        future
    };
    let leaves = come(leaves);
    let waiting = waiting.map(come);
    drop(leaves);
    let tasks: Vec<_> = waiting.into_iter().map(tokio::spawn).collect();
    let mut moments = Vec::new();
    for task in tasks {
        moments.push(task.await.unwrap());
    }
    moments
}

/// A waiter moves up to the time of one of its process that left, also past one of another process.
/// It does not take the time of that one.
#[tokio::test(start_paused = true)]
async fn a_waiter_moves_up_past_another_process_only_to_a_time_of_its_own() {
    for quota in one_each_100_ms() {
        let [here, there] = two_processes(quota);
        let turns = turns_after_one_left([&here, &there, &here, &there, &here]).await;
        assert_eq!(turns, [200, 100, 400, 300]);
    }
}

/// Limiters on one store of this process stand in one line.
#[tokio::test(start_paused = true)]
async fn limiters_on_one_store_admit_waiters_in_the_order_they_came() {
    for quota in one_each_100_ms() {
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
        assert!(here.acquire("ann", ms(0)).await.unwrap().is_allowed());
        let mut waiting: Vec<_> = [&here, &there, &here, &there, &here]
            .map(|limiter| Box::pin(limiter.acquire("ann", ms(10_000))))
            .into();
        for future in &mut waiting {
            assert!(poll(future).is_pending());
        }
        for taken_ms in [500, 400, 300, 200, 100] {
            drop(waiting.pop());
            let decision = here.peek("ann").await.unwrap();
            let taken = decision.policies().next().unwrap().reset_after();
            assert_eq!(taken, ms(taken_ms));
        }
    }
}

/// A caller that comes after another one left behind whom one of another process waits.
#[tokio::test(start_paused = true)]
async fn a_time_that_could_not_be_refunded_stays_taken() {
    for quota in one_each_100_ms() {
        let [here, there] = two_processes(quota);
        let started = Instant::now();
        assert!(here.acquire("ann", ms(0)).await.unwrap().is_allowed());
        let come = |limiter: &Limiter| {
            let limiter = limiter.clone();
            let mut future = Box::pin(async move { limiter.acquire("ann", ms(10_000)).await });
            assert!(poll(&mut future).is_pending());
            future
        };
        let leaves = come(&here);
        let first = come(&there);
        drop(leaves);
        let mut moments = Vec::new();
        for future in [first, come(&here), come(&there)] {
            assert!(future.await.unwrap().is_allowed());
            moments.push(whole_ms(started.elapsed()));
        }
        assert_eq!(moments, [200, 300, 400]);
    }
}

/// A store whose answers come up to so many milliseconds late and out of order.
#[derive(Clone, Debug)]
struct Late(MemoryStore, u64, Arc<Mutex<Random>>);

impl Store for Late {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let Answer::Now(answer) = self.0.check(check) else {
            panic!("memory answers at once");
        };
        let late = self.2.lock().unwrap().below(1 + self.1);
        Answer::Later(Box::pin(async move {
            if late > 0 {
                sleep(ms(late)).await;
            }
            answer
        }))
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.0.reset(charges)
    }
}

/// Lets callers of some processes come and leave at random. Admitted callers are an interval
/// apart. With one process and no reply in flight, nothing stays taken.
async fn come_and_leave(random: &mut Random, quota: Quota, processes: u64, late_ms: u64) {
    let late = Late(paused_store(), late_ms, Arc::new(Mutex::new(Random::new())));
    let limiters: Vec<_> = (0..processes)
        .map(|_| Limiter::new(late.clone(), quota))
        .collect();
    let (sender, mut admitted) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for _ in 0..400 {
        match random.below(8) {
            0..=3 => {
                let limiter = limiters[random.below(processes) as usize].clone();
                let sender = sender.clone();
                waiting.push(tokio::spawn(async move {
                    let permit = limiter.acquire("ann", ms(1_000_000)).await.unwrap();
                    assert!(permit.is_allowed());
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
    let decision = limiters[0].peek("ann").await.unwrap();
    let taken = decision.policies().next().unwrap().reset_after();
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
    let late = Late(paused_store(), 29, Arc::new(Mutex::new(Random::new())));
    let limiter = Limiter::new(late, LeakyBucket::per_second(1_000).queue(1_000));
    let mut line = JoinSet::new();
    for _ in 0..500 {
        let limiter = limiter.clone();
        line.spawn(async move { limiter.acquire("ann", ms(1_000)).await });
    }
    sleep(ms(40)).await;
    line.shutdown().await;
    sleep(ms(100)).await;
    let decision = limiter.peek("ann").await.unwrap();
    let taken = decision.policies().next().unwrap().reset_after();
    assert_eq!(taken, ms(0), "a wait is not refunded");
}

/// A store whose replies to refunds are lost.
#[derive(Clone, Debug)]
struct Lost(MemoryStore);

impl Store for Lost {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let answer = self.0.check(check);
        match check.operation() {
            Operation::Refund => Answer::Now(Err(StoreError::unavailable("lost"))),
            _ => answer,
        }
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        self.0.reset(charges)
    }
}

/// After a lost reply, the units may belong to a waiter of another process.
#[tokio::test(start_paused = true)]
async fn no_waiter_moves_up_on_an_uncertain_refund() {
    for quota in one_each_100_ms() {
        let store = Lost(paused_store());
        let [here, there] = [(); 2].map(|()| Limiter::new(store.clone(), quota));
        let come = |limiter: &Limiter| {
            let limiter = limiter.clone();
            let mut future = Box::pin(async move { limiter.acquire("ann", ms(10_000)).await });
            assert!(poll(&mut future).is_pending());
            future
        };
        let started = Instant::now();
        assert!(here.acquire("ann", ms(0)).await.unwrap().is_allowed());
        drop(come(&here));
        let waiting = [come(&there), come(&here)];
        let mut moments = Vec::new();
        for future in waiting {
            assert!(future.await.unwrap().is_allowed());
            moments.push(whole_ms(started.elapsed()));
        }
        assert_eq!(moments, [100, 200]);
    }
}
