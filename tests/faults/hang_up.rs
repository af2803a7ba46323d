//! Clients that do not wait for their answer.

use std::future::poll_fn;

use tokio::time::timeout;

use crate::prelude::*;
use crate::proxy::Mode;

const HIGHEST: u64 = 1_000_000;
const MOST_IN_FLIGHT: usize = 1_024;
const LEAVE_AFTER: Duration = Duration::from_millis(1);
/// The delay of each direction.
const AWAY: Duration = Duration::from_millis(5);

/// Returns whether exactly as many checks find room as may be in flight, so that none was in
/// flight.
async fn is_idle(limiter: &Limiter) -> bool {
    let mut all: Vec<_> = (0..=MOST_IN_FLIGHT)
        .map(|_| Box::pin(limiter.peek("unused")))
        .collect();
    let mut refused = Vec::new();
    for (number, check) in all.iter_mut().enumerate() {
        let polled = poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx))).await;
        if let Poll::Ready(Err(error)) = polled {
            assert!(error.is_overloaded(), "{error:?}");
            refused.push(number);
        }
    }
    refused == [MOST_IN_FLIGHT]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_the_clients_hang_up_and_nothing_stays_in_flight() {
    let mut row = Row::start("hang-up");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let quota = TokenBucket::without_refill(HIGHEST);
    let store = rig::builder()
        .timeout(rig::patience())
        .max_in_flight(MOST_IN_FLIGHT)
        .connect(&proxy.url());
    let limiter = rig::limiter(store.expect("a store"), quota);
    rig::ready(&limiter).await;
    proxy.set(Mode::Delay(AWAY));

    let load = Load {
        keys: 500,
        leaving: Some((50, LEAVE_AFTER)),
        ..Load::OF_ONE_IN_THREE
    };
    let recorder = Recorder::new(0);
    let time = Duration::from_secs(or_long(2, 60));
    load.run_for(&limiter, &recorder, time).await;
    // So slow that no reply comes during this test.
    proxy.set(Mode::Delay(10 * AWAY));
    let drained = wait::until_async("nothing in flight", async || {
        let is_idle = is_idle(&limiter).await;
        if !is_idle {
            // The checks of this test are in flight until their replies are back.
            tokio::time::sleep(30 * AWAY).await;
        }
        is_idle
    })
    .await;

    let ledger = recorder.ledger();
    let direct = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    let charges = rig::charges(&direct, &ledger, |_| HIGHEST).await;
    let surplus = checker::charged(&ledger, &charges, 1).expect("I5");
    checker::nothing_broke(&ledger).expect("I7");
    assert_eq!(proxy.sent().sent_again(), 0);
    let hung_up = rig::count(&ledger, |outcome| outcome == Outcome::HungUp);
    assert!(hung_up > 0, "no client left");
    row.figure("hung up", hung_up);
    row.figure("of them charged", surplus);
    row.took("nothing in flight after", drained, Duration::from_secs(5));
    row.answered(&ledger);
    let requests = ledger.len();
    let others = ledger.into_iter();
    let others = others.filter(|entry| entry.outcome != Outcome::HungUp);
    row.decided_by_store(&others.collect::<Vec<_>>(), 0.0);
    row.tell(requests as u64);
}

/// One at a time: each is in flight when its client leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_after_its_check_was_sent_is_charged() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(DEADLINE, &proxy.url()), quota);
    let direct = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    rig::ready(&limiter).await;
    // A caller on a busy machine may have its answer before it looks.
    proxy.set(Mode::Delay(4 * AWAY));
    let sent_before = proxy.sent().calls() as u64;
    let (leavers, mut left, mut sent) = (or_long(20, 1_000), 0, 0);
    while left < leavers {
        sent += 1;
        let mut check = Box::pin(limiter.check("ann"));
        let mut answer = None;
        wait::until_async("it is sent or answered", async || {
            answer = timeout(LEAVE_AFTER, &mut check).await.ok();
            answer.is_some() || proxy.sent().calls() as u64 >= sent_before + sent
        })
        .await;
        match answer {
            Some(answer) => assert!(answer.expect("a decision").is_allowed()),
            None => left += 1,
        }
    }
    wait::until_async("all charges", async || {
        let peek = direct.peek("ann").await.expect("a decision");
        let remaining = peek.policies().map(|policy| policy.remaining());
        remaining.min() == Some(HIGHEST - sent)
    })
    .await;
    proxy.set(Mode::Pass);
    let last = limiter.check("ann").await.expect("its own reply");
    let remaining = last.policies().map(|policy| policy.remaining()).min();
    assert_eq!(remaining, Some(HIGHEST - sent - 1));
}
