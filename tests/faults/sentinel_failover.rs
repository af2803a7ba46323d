//! Failovers by Sentinel.

use crate::prelude::*;
use crate::sentinel::{FOLLOWS, Unasked, Watched};

const RESUMES: Duration = Duration::from_secs(5);
const LOAD: Load = Load::new(200, 100, 160);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
    Ask,
}

/// Makes one failover. Returns when the primary was down, and how long the election took.
fn fail_over(
    watched: &mut Watched,
    recorder: &Recorder,
    unasked: &mut Unasked,
    fault: Fault,
) -> (Window, Duration) {
    std::thread::sleep(Duration::from_millis(500));
    unasked.look(watched, recorder);
    let from_us = recorder.now_us();
    let old = watched.primary();
    let port = old.port();
    let mut frozen: Option<Frozen> = None;
    match fault {
        Fault::Kill => old.kill(),
        Fault::Freeze => frozen = Some(signals::freeze(old.pid())),
        Fault::Ask => watched.fail_over(),
    }
    let elected = watched.wait_for_another(port);
    let to_us = recorder.now_us();
    unasked.excuse(watched, recorder);
    outage::load_until_resumed(recorder, to_us, RESUMES);
    unasked.look(watched, recorder);
    drop(frozen);
    (Window { from_us, to_us }, elected)
}

/// Makes failovers under load, one after the other.
async fn fails_over(name: &str, fault: Fault) {
    let mut row = Row::start(name);
    let mut watched = tokio::task::spawn_blocking(Watched::start)
        .await
        .expect("sentinels");
    let limiter = rig::limiter(rig::store(rig::CALL, &watched.url()), quota());
    rig::ready(&limiter).await;
    let recorder = Recorder::new(0);
    let rounds = or_long(1, 20);
    let script = tokio::task::spawn_blocking({
        let recorder = recorder.clone();
        move || {
            let mut unasked = Unasked::from_now_on(&watched, &recorder);
            let mut failovers = Vec::new();
            for round in 0..rounds {
                if round > 0 {
                    // The former primary comes back as a replica, after a while.
                    watched.run_all();
                    watched.wait_until_whole();
                }
                failovers.push(fail_over(&mut watched, &recorder, &mut unasked, fault));
            }
            (failovers, unasked.found)
        }
    });
    let (mut failovers, mut unasked) = (Vec::new(), Vec::new());
    let all = async { (failovers, unasked) = script.await.expect("failovers") };
    LOAD.run(&limiter, &recorder, all).await;

    let ledger = recorder.ledger();
    // Writes that the replica had not received are lost, until clients move: at once if the
    // primary is dead.
    let moved = match fault {
        Fault::Kill | Fault::Freeze => RESUMES,
        Fault::Ask => FOLLOWS,
    };
    let asked = failovers.iter().map(|(when, _)| when.and(moved));
    let losses = asked.chain(unasked.iter().map(|when| when.and(FOLLOWS)));
    let promise = outage::promise(losses.collect());
    let used = checker::admitted(&ledger, &promise).expect("I1");
    checker::nothing_broke(&ledger).expect("I7");
    let (mut longest, mut slowest) = (Duration::ZERO, Duration::ZERO);
    for (when, elected) in failovers {
        let resumed = checker::resumed(&ledger, when.to_us).expect("I6");
        longest = longest.max(resumed);
        slowest = slowest.max(elected);
    }
    row.figure("elected after", ms(slowest));
    row.took("resumed after", longest, RESUMES);
    row.figure("of what may be admitted", format!("{used:.3}"));
    row.figure("failovers unasked for", unasked.len());
    row.tell(rounds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_replaces_a_killed_primary() {
    fails_over("sentinel killed", Fault::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_replaces_a_frozen_primary() {
    fails_over("sentinel frozen", Fault::Freeze).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_replaces_a_primary_on_command() {
    fails_over("sentinel asked", Fault::Ask).await;
}
