//! An outage over time: who decided, and how long requests waited.

use std::{fmt::Write, fs, thread::sleep};

use crate::prelude::*;

const STEP_US: u64 = 100_000;
const BEFORE: Duration = Duration::from_secs(2);
const DOWN: Duration = Duration::from_secs(4);
const AFTER: Duration = Duration::from_secs(3);

/// One of two processes, whose server freezes. Writes a line for each tenth of a second to the file
/// that `TT_FAULTS_OVER_TIME` names: `scripts/plot` draws it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_over_time() {
    let mut row = Row::start("over time");
    let server = RedisServer::start();
    let store = rig::store(rig::CALL, &server.url());
    let limiter = rig::failing(OnStoreFailure::share_of(2), store, quota());
    rig::ready(&limiter).await;
    let recorder = Recorder::new(0);
    let from_us = recorder.now_us();
    let all = tokio::task::spawn_blocking(move || {
        sleep(BEFORE);
        let frozen = Frozen::new(&server);
        sleep(DOWN);
        drop(frozen);
        sleep(AFTER);
        server
    });
    let load = Load::new(500, 20, 20);
    let all = async { drop(all.await.expect("the server")) };
    load.run(&limiter, &recorder, all).await;

    // All tasks of the hot key send at the same time.
    let ledger = recorder.ledger().into_iter();
    let ledger: Vec<Entry> = ledger.filter(|entry| entry.key != HOT).collect();
    let mut lines = String::from("ms,by the store,by the process,denied,longest wait in ms\n");
    let steps = (BEFORE + DOWN + AFTER).as_micros() as u64 / STEP_US;
    for step in 0..steps {
        let start_us = from_us + step * STEP_US;
        let within = |entry: &&Entry| (start_us..start_us + STEP_US).contains(&entry.sent_us);
        let count = |is: fn(Outcome) -> bool| {
            let entries = ledger.iter().filter(within);
            entries.filter(|entry| is(entry.outcome)).count()
        };
        let by_store = count(|outcome| outcome == Outcome::Allowed(By::Store));
        let by_process = count(|outcome| outcome == Outcome::Allowed(By::Local));
        let denied = count(|outcome| matches!(outcome, Outcome::Denied(_)));
        let longest_us = ledger.iter().filter(within).map(Entry::took_us).max();
        let longest = longest_us.unwrap_or_default() as f64 / 1_000.0;
        let ms = step * STEP_US / 1_000;
        let line = format!("{ms},{by_store},{by_process},{denied},{longest:.1}");
        writeln!(lines, "{line}").expect("a string takes all");
    }
    if let Ok(file) = std::env::var("TT_FAULTS_OVER_TIME") {
        fs::write(file, lines).expect("a file");
    }
    let undecided = rig::count(&ledger, |outcome| !outcome.is_decision());
    row.figure("requests", ledger.len());
    assert_eq!(undecided, 0, "{:?}", checker::outcomes(&ledger));
    row.tell(1);
}
