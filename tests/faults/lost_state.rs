//! State that is lost, replaced by unexpected data, or from another time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tower_throttle::{Clock, Limiter, TokenBucket};

use crate::support::{RedisServer, WallClock};
use crate::{
    checker::{self, Elsewhere, Promise, Window},
    figures::{ms, or_long, tell},
    ledger::{Entry, Outcome, Recorder},
    load::{HOT, Load},
    rig,
};

const PER_S: u64 = 10;
const BURST: u64 = 20;
const FULL_REFILL: Duration = Duration::from_secs(BURST / PER_S);
const LOAD: Load = Load {
    per_s: 300,
    keys: 20,
    hot_per_s: 320,
    leaving: None,
};

fn quota() -> TokenBucket {
    TokenBucket::per_second(PER_S).burst(BURST)
}

fn promise(losses: Vec<Window>) -> Promise {
    Promise {
        burst: BURST,
        per_s: PER_S as f64,
        losses,
        elsewhere: Elsewhere::Nothing,
    }
}

/// Applies a fault several times under load, and returns when.
async fn again_and_again(recorder: &Recorder, times: u64, mut fault: impl FnMut()) -> Vec<Window> {
    let mut when = Vec::new();
    for _ in 0..times {
        sleep(Duration::from_millis(700)).await;
        let from_us = recorder.now_us();
        fault();
        when.push(Window {
            from_us,
            to_us: recorder.now_us(),
        });
    }
    sleep(Duration::from_millis(500)).await;
    when
}

async fn under_load(
    limiter: &Limiter,
    recorder: &Recorder,
    faults: impl Future<Output = Vec<Window>>,
) -> Vec<Window> {
    let mut when = Vec::new();
    let all = async { when = faults.await };
    LOAD.run(limiter, recorder, all).await;
    when
}

/// Returns the longest time without an admission of the hot key, which is checked all the time.
fn longest_wait(ledger: &[Entry]) -> Duration {
    let mut hot = ledger.iter().filter(|entry| entry.key == HOT);
    let first = hot.next().expect("the hot key was asked for").sent_us;
    let last = hot.next_back().expect("more than once").sent_us;
    let admitted = hot.filter(|entry| entry.outcome.is_allowed());
    let mut times: Vec<u64> = admitted.map(|entry| entry.sent_us).collect();
    times.extend([first, last]);
    times.sort_unstable();
    let waits = times.windows(2).map(|two| two[1] - two[0]);
    Duration::from_micros(waits.max().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall_gives_each_key_one_burst_and_no_more() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let (deadline, in_time) = rig::patience();
    let limiter = rig::limiter(rig::store(deadline, &server.url()), quota());
    rig::ready(&limiter).await;
    let recorder = Recorder::new(0);
    let losses = or_long(4, 100);
    let flushing = again_and_again(&recorder, losses, || {
        server.command(&["FLUSHALL"]);
    });
    let lost = under_load(&limiter, &recorder, flushing).await;

    let ledger = recorder.ledger();
    let used = checker::admitted(&ledger, &promise(lost)).expect("I1");
    let none_lost = checker::admitted(&ledger, &promise(Vec::new()));
    assert!(none_lost.is_err(), "the losses were there: {none_lost:?}");
    let latency = checker::answered(&ledger, in_time).expect("I2");
    checker::nothing_broke(&ledger).expect("I7");
    tell(
        "lost state FLUSHALL",
        losses,
        &[
            ("of what may be admitted", format!("{used:.3}")),
            ("p99.9", ms(latency.p999)),
            ("longest", ms(latency.most)),
        ],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn junk_under_a_key_admits_no_more_and_expires() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let (deadline, in_time) = rig::patience();
    let limiter = rig::limiter(rig::store(deadline, &server.url()), quota());
    rig::ready(&limiter).await;
    let key = limiter.storage_keys(u64::from(HOT)).remove(0);
    let junk: [&[&str]; 5] = [
        &["SET", &key, "junk"],
        &["SET", &key, "0000000000000000001"],
        &["LPUSH", &key, "a list"],
        &["SET", &key, "9999999999999999999"],
        &["HSET", &key, "a", "hash"],
    ];
    let recorder = Recorder::new(0);
    let mut put = junk.iter().cycle();
    let times = or_long(5, 100);
    let writing = again_and_again(&recorder, times, || {
        server.command(&["DEL", &key]);
        server.command(put.next().expect("a cycle has no end"));
    });
    let lost = under_load(&limiter, &recorder, writing).await;

    let ledger = recorder.ledger();
    let used = checker::admitted(&ledger, &promise(lost)).expect("I1");
    checker::answered(&ledger, in_time).expect("I2");
    checker::nothing_broke(&ledger).expect("I7");
    let corrupt = rig::count(&ledger, |outcome| outcome == Outcome::CorruptState);
    assert!(corrupt > 0, "the junk was met");
    let others = ledger.iter().filter(|entry| entry.key != HOT);
    let hurt = others.filter(|entry| !entry.outcome.is_by_store()).count();
    assert_eq!(hurt, 0, "other callers failed, too");
    // The junk that was written last may have a full refill to go.
    server.assert_all_keys_expire();
    let within = FULL_REFILL + Duration::from_secs(1);
    let gone = crate::wait::until_async("the junk's end", within, async || {
        limiter.peek(u64::from(HOT)).await.is_ok()
    })
    .await;
    tell(
        "lost state junk",
        times,
        &[
            ("of what may be admitted", format!("{used:.3}")),
            ("errors", corrupt.to_string()),
            ("gone after", ms(gone)),
        ],
    );
}

/// A clock that is set to other times.
#[derive(Debug)]
struct SteppedClock {
    step_s: AtomicI64,
}

impl Clock for SteppedClock {
    fn now_us(&self) -> u64 {
        let step_us = self.step_s.load(Ordering::SeqCst) * 1_000_000;
        WallClock.now_us().saturating_add_signed(step_us)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_steps_of_an_hour_lock_no_caller_out() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let (deadline, in_time) = rig::patience();
    let clock = Arc::new(SteppedClock {
        step_s: AtomicI64::new(0),
    });
    let store = rig::builder()
        .timeout(deadline)
        .clock(Arc::clone(&clock))
        .connect(&server.url());
    let limiter = rig::limiter(store.expect("a store"), quota());
    rig::ready(&limiter).await;
    let recorder = Recorder::new(0);
    let hours = [-1, 0, 1, 0, -1, 1];
    let mut next = hours.iter().cycle();
    let times = or_long(6, 60);
    let stepping = again_and_again(&recorder, times, || {
        let hour = next.next().expect("a cycle has no end");
        clock.step_s.store(hour * 3_600, Ordering::SeqCst);
    });
    let stepped = under_load(&limiter, &recorder, stepping).await;

    let ledger = recorder.ledger();
    // A check may be in flight with the time before the step.
    let windows = stepped.iter().map(|step| Window {
        from_us: step.from_us,
        to_us: step.to_us + in_time.most.as_micros() as u64,
    });
    let used = checker::admitted(&ledger, &promise(windows.collect())).expect("I1");
    checker::answered(&ledger, in_time).expect("I2");
    checker::nothing_broke(&ledger).expect("I7");
    let wait = longest_wait(&ledger);
    assert!(wait <= FULL_REFILL, "locked out for {wait:?}");
    tell(
        "lost state clock",
        times,
        &[
            ("of what may be admitted", format!("{used:.3}")),
            ("longest wait of a busy key", ms(wait)),
        ],
    );
}
