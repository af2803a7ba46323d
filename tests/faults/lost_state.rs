//! State that is lost, replaced by unexpected data, or from another time.

use std::sync::atomic::AtomicI64;

use tokio::time::sleep;

use crate::prelude::*;
use crate::{
    outage::{BURST, PER_S, promise},
    support::WallClock,
};

const FULL_REFILL: Duration = Duration::from_secs(BURST / PER_S);
const REPLACE: &str = "redis.call('DEL', KEYS[1]) return redis.call(unpack(ARGV))";
const LOAD: Load = Load::new(300, 20, 320);

/// Applies a fault several times under load, and returns when.
async fn again_and_again(recorder: &Recorder, times: u64, mut fault: impl FnMut()) -> Vec<Window> {
    let mut when = Vec::new();
    for _ in 0..times {
        sleep(Duration::from_millis(or_long(400, 700))).await;
        let from_us = recorder.now_us();
        fault();
        when.push(recorder.since(from_us));
    }
    sleep(Duration::from_millis(or_long(200, 500))).await;
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
    let mut row = Row::start("lost state FLUSHALL");
    let server = RedisServer::start();
    let limiter = rig::limiter(rig::store(rig::patience(), &server.url()), quota());
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
    checker::nothing_broke(&ledger).expect("I7");
    row.figure("of what may be admitted", format!("{used:.3}"));
    row.answered(&ledger);
    row.tell(losses);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn junk_under_a_key_admits_no_more_and_expires() {
    let mut row = Row::start("lost state junk");
    let server = RedisServer::start();
    let limiter = rig::limiter(rig::store(rig::patience(), &server.url()), quota());
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
        // No check comes in between.
        let put = put.next().expect("a cycle has no end");
        server.command(&[&["EVAL", REPLACE, "1", &key], *put].concat());
    });
    let lost = under_load(&limiter, &recorder, writing).await;

    let ledger = recorder.ledger();
    let used = checker::admitted(&ledger, &promise(lost)).expect("I1");
    row.figure("of what may be admitted", format!("{used:.3}"));
    row.answered(&ledger);
    checker::nothing_broke(&ledger).expect("I7");
    let corrupt = rig::count(&ledger, |outcome| outcome == Outcome::CorruptState);
    assert!(corrupt > 0, "the junk was met");
    row.figure("errors", corrupt);
    let others: Vec<_> = ledger.into_iter().filter(|e| e.key != HOT).collect();
    row.decided_by_store(&others, 0.0);
    // The junk that was written last may have a full refill to go.
    server.assert_all_keys_expire();
    let gone = wait::until_async("the junk's end", async || {
        limiter.peek(u64::from(HOT)).await.is_ok()
    })
    .await;
    row.took("gone after", gone, FULL_REFILL + Duration::from_secs(1));
    row.tell(times);
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
    let mut row = Row::start("lost state clock");
    let server = RedisServer::start();
    let clock = Arc::new(SteppedClock {
        step_s: AtomicI64::new(0),
    });
    let store = rig::builder()
        .timeout(rig::patience())
        .clock(Arc::clone(&clock))
        .connect(&server.url());
    let limiter = rig::limiter(store.expect("a store"), quota());
    rig::ready(&limiter).await;
    let recorder = Recorder::new(0);
    let hours = [-1, 0, 1, 0, -1, 1];
    let times = or_long(6, 60);
    let stepping = async {
        let mut stepped = Vec::new();
        for hour in hours.into_iter().cycle().take(times) {
            let step = again_and_again(&recorder, 1, || {
                clock.step_s.store(hour * 3_600, Ordering::SeqCst);
            });
            stepped.extend(step.await);
            let since_us = recorder.now_us();
            wait::until_async("an admission", async || {
                recorder.has(|entry| {
                    entry.key == HOT && entry.sent_us >= since_us && entry.outcome.is_allowed()
                })
            })
            .await;
        }
        stepped
    };
    let stepped = under_load(&limiter, &recorder, stepping).await;

    let ledger = recorder.ledger();
    // A check may be in flight with the time before the step.
    let in_flight = |step: Window| {
        let before = ledger.iter().filter(|entry| entry.sent_us <= step.to_us);
        let until_us = before.map(|entry| entry.answered_us).max();
        Window {
            to_us: until_us.unwrap_or_default().max(step.to_us),
            ..step
        }
    };
    let losses = stepped.into_iter().map(in_flight).collect();
    let used = checker::admitted(&ledger, &promise(losses)).expect("I1");
    row.figure("of what may be admitted", format!("{used:.3}"));
    row.answered(&ledger);
    checker::nothing_broke(&ledger).expect("I7");
    let wait = longest_wait(&ledger);
    row.took("longest wait of a busy key", wait, FULL_REFILL);
    row.tell(times as u64);
}
