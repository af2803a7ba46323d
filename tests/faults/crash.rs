//! A server that is absent at the start, crashes, or stays away.

use crate::outage::RESUMES;
use crate::prelude::*;

const DOWN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_absent_at_the_start_is_found_when_it_starts() {
    let mut row = Row::start("crash absent");
    let mut server = RedisServer::stopped(&[]);
    let url = server.url();
    let limiter = rig::limiter(rig::store(rig::CALL, &url), quota());
    let (run, _server) = outage::under_load(&limiter, Some(&url), move |outage| {
        outage.hold(DOWN);
        server.run();
        server
    })
    .await;
    assert_eq!(run.during(Outcome::is_by_store), 0);
    run.is_bridged(&mut row, Vec::new());
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_is_bridged_and_the_store_decides_again() {
    let mut row = Row::start("crash down for a while");
    let mut server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let (run, _server) = outage::at(&proxy.url(), move |outage| {
        server.kill();
        outage.hold(DOWN);
        server.run();
        server
    })
    .await;
    assert_eq!(run.during(Outcome::is_by_store), 0);
    run.is_bridged(&mut row, vec![run.outage.when]);
    run.sends_at_most(&mut row, &proxy, 20);
    row.tell(1);
}

/// Each process continues with its share of the quota.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_decide_locally_during_a_crash() {
    const PROCESSES: u32 = 2;
    let mut row = Row::start("crash local");
    let mut server = RedisServer::start();
    let choice = OnStoreFailure::share_of(PROCESSES);
    let store = rig::store(rig::CALL, &server.url());
    let limiter = rig::failing(choice, store, quota());
    rig::ready(&limiter).await;
    let (run, _server) = outage::under_load(&limiter, None, move |outage| {
        server.kill();
        outage.hold(DOWN);
        server.run();
        server
    })
    .await;
    let undecided = rig::count(&run.ledger, |outcome| !outcome.is_decision());
    assert_eq!(undecided, 0, "{:?}", checker::outcomes(&run.ledger));
    let by_itself = run.during(|outcome| outcome == Outcome::Allowed(By::Local));
    assert!(by_itself > 0, "the process admits");
    let share = Elsewhere::Local {
        burst: outage::BURST / u64::from(PROCESSES),
        per_s: outage::PER_S as f64 / f64::from(PROCESSES),
        outages: 1,
    };
    row.figure("admitted by itself", by_itself);
    run.judge_beside(&mut row, vec![run.outage.when], share);
    run.is_open_soon(&mut row);
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_crashes_are_bridged() {
    let mut row = Row::start("crash cycles");
    let mut server = RedisServer::start();
    let url = server.url();
    let limiter = rig::limiter(rig::store(rig::CALL, &url), quota());
    rig::ready(&limiter).await;
    let cycles = or_long(5, 100);
    let recorder = Recorder::new(0);
    let mut longest = Duration::ZERO;
    let mut lost = Vec::new();
    for _ in 0..cycles {
        let from_us = recorder.now_us();
        server.kill();
        wait::until_async("a failure", async || {
            let pending = recorder.open(1, 1);
            let answer = limiter.check(1_u64).await;
            pending.answered(&answer);
            answer.is_err()
        })
        .await;
        server.run();
        lost.push(recorder.since(from_us));
        let took = wait::until_async("decisions", async || {
            let pending = recorder.open(1, 1);
            let answer = limiter.check(1_u64).await;
            pending.answered(&answer);
            answer.is_ok()
        })
        .await;
        longest = longest.max(took);
    }
    checker::admitted(&recorder.ledger(), &outage::promise(lost)).expect("I1");
    row.took("resumed after", longest, RESUMES);
    row.tell(cycles);
}
