//! A primary of a cluster dies or freezes, and its replica takes over.

use std::{collections::HashSet, thread::sleep};

use fred::util::redis_keyslot;

use crate::prelude::*;
use crate::support::cluster::RedisCluster;

/// The time from the fault on, with the election.
const RESUMES: Duration = Duration::from_secs(10);
const LOAD: Load = Load::new(300, 100, 320);

/// What remains for a key is in a band of its own, so that a decision shows whose it is.
const BANDED: Load = Load::new(100, 20, 0);
const HIGHEST: u64 = 1_000_000_000;
const BAND: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze,
}

/// One primary was down in this window, and these keys with it.
#[derive(Debug)]
struct Failover {
    when: Window,
    elected: Duration,
    hurt: HashSet<u32>,
}

/// Returns the node that serves the hot key, with the slot, and the other keys on that node.
fn beside_hot(cluster: &RedisCluster, limiter: &Limiter) -> (usize, u16, HashSet<u32>) {
    let slot = |key: u32| redis_keyslot(limiter.storage_keys(u64::from(key))[0].as_bytes());
    let place = cluster.owner(slot(HOT));
    let its: Vec<_> = cluster.slots_of(place).collect();
    let is_hurt = |key: &u32| its.iter().any(|range| range.contains(&slot(*key)));
    (
        place,
        slot(HOT),
        (HOT..=LOAD.keys).filter(is_hurt).collect(),
    )
}

fn fail_over(
    cluster: &mut RedisCluster,
    limiter: &Limiter,
    recorder: &Recorder,
    fault: Fault,
) -> Failover {
    sleep(Duration::from_millis(500));
    let (place, slot, hurt) = beside_hot(cluster, limiter);
    let from_us = recorder.now_us();
    let mut frozen: Option<Frozen> = None;
    match fault {
        Fault::Kill => cluster.nodes[place].kill(),
        Fault::Freeze => frozen = Some(signals::freeze(cluster.nodes[place].pid())),
    }
    let elected = wait::until("another primary", || {
        cluster.is_served_elsewhere(slot, place)
    });
    let to_us = recorder.now_us();
    let resumed =
        |entry: &Entry| entry.key == HOT && entry.sent_us >= to_us && entry.outcome.is_by_store();
    wait::until("decisions", || recorder.has(resumed));
    sleep(Duration::from_millis(500));
    match frozen {
        Some(frozen) => drop(frozen),
        None => cluster.nodes[place].run(),
    }
    wait::until("a whole cluster", || {
        cluster.is_well() && cluster.are_in_sync(3)
    });
    Failover {
        when: Window { from_us, to_us },
        elected,
        hurt,
    }
}

async fn fails_over(name: &str, fault: Fault) {
    let row = Row::start(name);
    let cluster = tokio::task::spawn_blocking(|| RedisCluster::start(3, 3));
    let mut cluster = cluster.await.expect("a cluster");
    let store = rig::store(or_long(20 * rig::CALL, rig::CALL), &cluster.url());
    let limiter = rig::limiter(store.clone(), quota());
    let bands = Policy::new("bands", TokenBucket::without_refill(HIGHEST));
    let banded = rig::limiter(store, bands.clone());
    rig::ready(&limiter).await;
    let direct = rig::limiter(rig::store(DEADLINE, &cluster.url()), bands);
    rig::spread_out(&direct, BANDED.keys + 1, BAND).await;

    let rounds = or_long(1, 20);
    let (recorder, of_bands) = (Recorder::new(0), Recorder::new(0));
    let script = tokio::task::spawn_blocking({
        let (limiter, recorder) = (limiter.clone(), recorder.clone());
        move || -> Vec<_> {
            (0..rounds)
                .map(|_| fail_over(&mut cluster, &limiter, &recorder, fault))
                .collect()
        }
    });
    let mut failovers = Vec::new();
    let all = async { failovers = script.await.expect("failovers") };
    let (over, is_over) = tokio::sync::oneshot::channel();
    let all = async {
        all.await;
        let _ = over.send(());
    };
    tokio::join!(
        LOAD.run(&limiter, &recorder, all),
        BANDED.run(&banded, &of_bands, is_over)
    );
    judge(row, &failovers, &recorder.ledger(), &of_bands.ledger());
}

fn judge(mut row: Row, failovers: &[Failover], ledger: &[Entry], of_bands: &[Entry]) {
    // What the replica had not received is lost, until clients move.
    let losses = failovers.iter().map(|failover| failover.when.and(RESUMES));
    let promise = outage::promise(losses.collect());
    let used = checker::admitted(ledger, &promise).expect("I1");
    let reported = checker::own_bands(of_bands, HIGHEST, BAND).expect("I4");
    let foreign = |entries| rig::count(entries, |outcome| outcome == Outcome::ForeignReply);
    assert_eq!(foreign(ledger) + foreign(of_bands), 0, "I4");
    checker::nothing_broke(ledger).expect("I7");
    checker::nothing_broke(of_bands).expect("I7");

    let (mut longest, mut elected) = (Duration::ZERO, Duration::ZERO);
    let mut elsewhere = Vec::new();
    for failover in failovers {
        let (hurt, others): (Vec<_>, Vec<_>) = ledger
            .iter()
            .cloned()
            .partition(|entry| failover.hurt.contains(&entry.key));
        let resumed = checker::resumed(&hurt, failover.when.to_us).expect("I6");
        longest = longest.max(failover.elected + resumed);
        elected = elected.max(failover.elected);
        let during = failover.when.from_us..failover.when.to_us + resumed.as_micros() as u64;
        let others = others.into_iter();
        elsewhere.extend(others.filter(|entry| during.contains(&entry.sent_us)));
    }
    row.figure("elected after", ms(elected));
    row.took("decides again after", longest, RESUMES);
    row.figure("of what may be admitted", format!("{used:.3}"));
    row.figure("own replies", reported);
    let damaged = rig::count(&elsewhere, |outcome| !outcome.is_by_store());
    let mut part = row.part("elsewhere");
    part.answered(&elsewhere);
    part.failed(damaged, elsewhere.len(), 0.01, rig::CALL);
    part.tell(elsewhere.len() as u64);
    row.tell(failovers.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_replaces_a_killed_primary() {
    fails_over("cluster killed", Fault::Kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_replaces_a_frozen_primary() {
    fails_over("cluster frozen", Fault::Freeze).await;
}
