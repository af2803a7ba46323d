//! The primary is cut off, with the clients on its side.
//!
//! Those clients use a limiter of their own until the primary notices that its replicas are
//! silent: `min-replicas-max-lag`, which it checks once a second. A server that lets scripts
//! write nevertheless continues: its side is held to the quota, too.

use std::thread::sleep;

use crate::prelude::*;
use crate::sentinel::{Unasked, Watched};

const MAX_LAG_S: u64 = 1;
/// A replica reports every second, and the primary checks every second.
const SLACK_S: u64 = 2;
const RESUMES: Duration = Duration::from_secs(5);
const LOAD: Load = Load::new(200, 50, 160);

/// The limiter of the cut side.
struct Cut {
    lasted: Duration,
    most_of_a_key: u64,
}

async fn cut_off() -> (Cut, Duration, Duration, f64) {
    let watched = tokio::task::spawn_blocking(|| Watched::with_lag(MAX_LAG_S));
    let watched = watched.await.expect("sentinels");
    let limiter = rig::limiter(rig::store(rig::CALL, &watched.url()), quota());
    let beside = rig::limiter(rig::store(rig::CALL, &watched.first().url()), quota());
    rig::ready(&limiter).await;
    rig::ready(&beside).await;
    let known = watched.agreed().expect("a primary");
    let (most, cut_side) = (Recorder::new(0), Recorder::new(1));
    let script = tokio::task::spawn_blocking({
        let (recorder, cut_side) = (most.clone(), cut_side.clone());
        move || {
            let mut unasked = Unasked::from_now_on(&watched, &recorder);
            sleep(Duration::from_millis(500));
            unasked.look(&watched, &recorder);
            let from_us = recorder.now_us();
            watched.cut();
            let elected = watched.wait_for_another(known);
            let to_us = recorder.now_us();
            unasked.excuse(&watched, &recorder);
            outage::load_until_resumed(&recorder, to_us, RESUMES);
            match RedisServer::holds_scripts_to_min_replicas() {
                true => {
                    let refused = |entry: &Entry| is_refused(entry, to_us);
                    wait::until("a refusal", || cut_side.has(refused));
                }
                false => sleep(Duration::from_secs(MAX_LAG_S + SLACK_S)),
            }
            unasked.look(&watched, &recorder);
            (Window { from_us, to_us }, unasked.found, elected, watched)
        }
    });
    let (over, is_over) = tokio::sync::oneshot::channel();
    let mut done = None;
    let all = async {
        done = Some(script.await.expect("a cut"));
        let _ = over.send(());
    };
    tokio::join!(
        LOAD.run(&limiter, &most, all),
        LOAD.run(&beside, &cut_side, is_over)
    );
    let (when, mut losses, elected, _watched) = done.expect("the load lasts until then");

    let (ledger, cut_side) = (most.ledger(), cut_side.ledger());
    checker::nothing_broke(&ledger).expect("I7");
    checker::nothing_broke(&cut_side).expect("I7");
    losses.push(when);
    let losses = losses.into_iter().map(|when| when.and(RESUMES));
    let used = checker::admitted(&ledger, &outage::promise(losses.collect())).expect("I1");
    checker::admitted(&cut_side, &outage::promise(Vec::new())).expect("I1 of the cut side");
    let resumed = checker::resumed(&ledger, when.to_us).expect("I6");
    (since(&cut_side, when), elected, resumed, used)
}

fn is_refused(entry: &Entry, since_us: u64) -> bool {
    entry.outcome == Outcome::Refused && entry.sent_us >= since_us
}

fn since(cut_side: &[Entry], when: Window) -> Cut {
    let Window { from_us, to_us } = when;
    let after = cut_side.iter().filter(|entry| entry.sent_us >= from_us);
    let admitted: Vec<_> = after.filter(|entry| entry.outcome.is_allowed()).collect();
    let refused = cut_side.iter().filter(|entry| is_refused(entry, to_us));
    if let Some(refused_us) = refused.map(|entry| entry.answered_us).min() {
        let later = admitted.iter().find(|entry| entry.sent_us > refused_us);
        assert_eq!(later, None, "it has noticed");
    }
    let last_us = admitted.iter().map(|entry| entry.answered_us).max();
    let of = |key| admitted.iter().filter(|entry| entry.key == key).count() as u64;
    Cut {
        lasted: Duration::from_micros(last_us.unwrap_or(from_us) - from_us),
        most_of_a_key: (HOT..=LOAD.keys).map(of).max().unwrap_or_default(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_cut_off_stops_by_itself() {
    let mut row = Row::start("sentinel cut");
    let rounds = or_long(1, 20);
    let (mut lasted, mut most_of_a_key) = (Duration::ZERO, 0);
    let (mut elected, mut resumed, mut used): (Duration, Duration, f64) = Default::default();
    for _ in 0..rounds {
        let (cut, its_elected, its_resumed, its_used) = cut_off().await;
        lasted = lasted.max(cut.lasted);
        most_of_a_key = most_of_a_key.max(cut.most_of_a_key);
        elected = elected.max(its_elected);
        resumed = resumed.max(its_resumed);
        used = used.max(its_used);
    }
    let bound = Duration::from_secs(MAX_LAG_S + SLACK_S);
    match RedisServer::holds_scripts_to_min_replicas() {
        true => row.took("the cut side admitted for", lasted, bound),
        false => assert!(lasted > bound, "the cut side stops after {lasted:?}"),
    }
    row.figure("most of a key", most_of_a_key);
    row.figure("elected after", ms(elected));
    row.took("resumed after", resumed, RESUMES);
    row.figure("of what may be admitted", format!("{used:.3}"));
    row.tell(rounds);
}
