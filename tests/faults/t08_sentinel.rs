//! T8: failovers by Sentinel.

use std::time::Duration;

use crate::{
    checker::{self, Elsewhere, Promise, Window},
    figures::{ms, tell},
    ledger::Recorder,
    load::Load,
    outage::{self, BURST, PER_S, quota},
    rig,
    sentinel::Watched,
    signals::{self, Frozen},
};

const RESUMES: Duration = Duration::from_secs(5);
const LOAD: Load = Load {
    per_s: 200,
    keys: 100,
    hot_per_s: 160,
    leaving: None,
};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
    Ask,
}

/// One failover under load.
async fn fails_over(name: &str, fault: Fault) {
    let _alone = rig::alone().await;
    let mut watched = tokio::task::spawn_blocking(Watched::start)
        .await
        .expect("sentinels");
    let limiter = rig::limiter(rig::store(rig::CALL, &watched.url()), quota());
    rig::ready(&limiter).await;
    let recorder = Recorder::new(0);
    let script = tokio::task::spawn_blocking({
        let recorder = recorder.clone();
        move || {
            std::thread::sleep(Duration::from_millis(500));
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
            outage::load_until_resumed(&recorder, to_us, RESUMES);
            drop(frozen);
            (Window { from_us, to_us }, elected, watched)
        }
    });
    let mut done = None;
    let all = async { done = Some(script.await.expect("a failover")) };
    LOAD.run(&limiter, &recorder, all).await;
    let (when, elected, _watched) = done.expect("the load lasts until then");

    let ledger = recorder.ledger();
    let promise = Promise {
        burst: BURST,
        per_s: PER_S as f64,
        // Writes that the replica had not seen are lost, until clients move.
        losses: vec![Window {
            from_us: when.from_us,
            to_us: when.to_us + RESUMES.as_micros() as u64,
        }],
        elsewhere: Elsewhere::Nothing,
    };
    let outcomes = checker::outcomes(&ledger);
    let used = checker::admitted(&ledger, &promise).expect("I1");
    checker::nothing_broke(&ledger).expect("I7");
    let resumed = checker::resumed(&ledger, when.to_us, RESUMES);
    let resumed = resumed.unwrap_or_else(|broken| panic!("{broken}: {outcomes:?}"));
    tell(
        name,
        1,
        &[
            ("elected after", ms(elected)),
            ("resumed after", ms(resumed)),
            ("of what may be admitted", format!("{used:.3}")),
        ],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t08_the_primary_is_killed() {
    fails_over("T8 killed", Fault::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t08_the_primary_freezes() {
    fails_over("T8 frozen", Fault::Freeze).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t08_the_primary_is_told_to_go() {
    fails_over("T8 asked", Fault::Ask).await;
}
