//! Clients that do not wait for their answer.

use std::{future::poll_fn, task::Poll, time::Duration};

use tokio::time::timeout;
use tower_throttle::{Limiter, TokenBucket};

use crate::support::{DEADLINE, RedisServer};
use crate::{
    checker,
    figures::{ms, or_long, tell},
    ledger::{Outcome, Recorder},
    load::Load,
    proxy::{Mode, Proxy},
    rig, wait,
};

const HIGHEST: u64 = 1_000_000;
const MOST_IN_FLIGHT: usize = 1_024;
const LEAVE_AFTER: Duration = Duration::from_millis(1);
/// The delay of each direction. No caller that leaves has its answer by then.
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
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let (deadline, in_time) = rig::patience();
    let quota = TokenBucket::without_refill(HIGHEST);
    let store = rig::builder()
        .timeout(deadline)
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
    let time = Duration::from_secs(or_long(3, 60));
    load.run_for(&limiter, &recorder, time).await;
    // So slow that no reply comes during this test.
    proxy.set(Mode::Delay(10 * AWAY));
    let most = Duration::from_secs(5);
    let drained = wait::until_async("nothing in flight", most, async || {
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
    let latency = checker::answered(&ledger, in_time).expect("I2");
    checker::nothing_broke(&ledger).expect("I7");
    assert_eq!(proxy.sent().sent_again(), 0);
    let hung_up = rig::count(&ledger, |outcome| outcome == Outcome::HungUp);
    assert!(hung_up * 3 > ledger.len() as u64, "{hung_up}");
    let decided = rig::count(&ledger, Outcome::is_decision);
    assert_eq!(
        decided + hung_up,
        ledger.len() as u64,
        "the others are served"
    );
    tell(
        "hang-up",
        ledger.len() as u64,
        &[
            ("hung up", hung_up.to_string()),
            ("of them charged", surplus.to_string()),
            ("nothing in flight after", ms(drained)),
            ("p99.9", ms(latency.p999)),
        ],
    );
}

/// One at a time: each is in flight when its client leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_after_its_check_was_sent_is_charged() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(DEADLINE, &proxy.url()), quota);
    let direct = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    rig::ready(&limiter).await;
    proxy.set(Mode::Delay(AWAY));
    let sent_before = proxy.sent().calls();
    let leavers = or_long(50, 1_000);
    for leaver in 1..=leavers {
        let sent = sent_before + leaver as usize;
        let mut check = Box::pin(limiter.check("ann"));
        let leaves = async || {
            let answer = timeout(LEAVE_AFTER, &mut check).await;
            assert!(answer.is_err(), "too early to be an answer: {answer:?}");
            proxy.sent().calls() >= sent
        };
        wait::until_async("it is sent", DEADLINE, leaves).await;
    }
    wait::until_async("all charges", DEADLINE, async || {
        let peek = direct.peek("ann").await.expect("a decision");
        let remaining = peek.policies().map(|policy| policy.remaining());
        remaining.min() == Some(HIGHEST - leavers)
    })
    .await;
    proxy.set(Mode::Pass);
    let last = limiter.check("ann").await.expect("its own reply");
    let remaining = last.policies().map(|policy| policy.remaining()).min();
    assert_eq!(remaining, Some(HIGHEST - leavers - 1));
}
