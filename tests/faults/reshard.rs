//! Slots that move under load, one by one and all of a node.

use std::time::Instant;

use fred::util::redis_keyslot;

use crate::prelude::*;
use crate::support::cluster::RedisCluster;

const KEYS: usize = 32;
const HIGHEST: u64 = 100_000_000_000;
const BAND: u64 = 10_000_000;
/// In short runs the first node has this many slots, and soon none.
const FEW_SLOTS: u16 = 32;
/// The pause between two checks of a caller, because concurrent callers must not overload the
/// cluster.
const PAUSE: Duration = Duration::from_millis(20);

fn slot(limiter: &Limiter, key: u32) -> u16 {
    redis_keyslot(limiter.storage_keys(u64::from(key))[0].as_bytes())
}

/// Half of them belong to the first node.
fn keys(cluster: &RedisCluster, limiter: &Limiter) -> Vec<u32> {
    let first: Vec<_> = cluster.slots_of(0).collect();
    let is_first = |key: &u32| {
        let slot = slot(limiter, *key);
        first.iter().any(|range| range.contains(&slot))
    };
    let its = (0..).filter(is_first).take(KEYS / 2);
    let others = (0..).filter(|key| !is_first(key)).take(KEYS / 2);
    its.chain(others).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_slots_lose_no_charge_under_load() {
    let mut row = Row::start("reshard");
    let cluster = tokio::task::spawn_blocking(|| match is_long() {
        true => RedisCluster::start(3, 0),
        false => RedisCluster::with_bounds(&[0, FEW_SLOTS, 8_000]),
    });
    let cluster = cluster.await.expect("a cluster");
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(rig::patience(), &cluster.url()), quota);
    let direct = rig::limiter(rig::store(DEADLINE, &cluster.url()), quota);
    rig::ready(&limiter).await;
    let keys = keys(&cluster, &limiter);
    for key in keys.iter().filter(|key| **key > 0) {
        let taken = direct.check_n(u64::from(*key), u64::from(*key) * BAND);
        assert!(taken.await.expect("a decision").is_allowed());
    }

    let moves = Arc::new(AtomicU64::new(0));
    let slots: Vec<_> = keys.iter().map(|key| slot(&limiter, *key)).collect();
    let one_by_one = Duration::from_secs(or_long(0, 150));
    let moving = tokio::task::spawn_blocking({
        let moves = Arc::clone(&moves);
        move || {
            let move_slot = |slot, to| {
                cluster.move_slot(slot, to);
                cluster.wait_until_agreed();
                moves.fetch_add(1, Ordering::Relaxed);
            };
            let until = Instant::now() + one_by_one;
            for (number, slot) in slots.iter().cycle().enumerate() {
                if number > KEYS && Instant::now() >= until {
                    break;
                }
                move_slot(*slot, (cluster.owner(*slot) + 1) % 3);
            }
            let all: Vec<u16> = cluster.slots_of(0).flatten().collect();
            for slot in &all {
                move_slot(*slot, 1 + usize::from(*slot) % 2);
            }
            (all.len(), cluster)
        }
    });

    let recorder = Recorder::new(0);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut asking = JoinSet::new();
    for caller in 0..or_long(16, 64) {
        let (limiter, recorder) = (limiter.clone(), recorder.clone());
        let (keys, is_over) = (keys.clone(), Arc::clone(&is_over));
        asking.spawn(async move {
            let mut turn = caller;
            while !is_over.load(Ordering::Relaxed) {
                turn += 7;
                let key = keys[turn % KEYS];
                let pending = recorder.open(key, 1);
                pending.answered(&limiter.check(u64::from(key)).await);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    let (resharded, cluster) = moving.await.expect("slots that move");
    is_over.store(true, Ordering::Relaxed);
    asking.join_all().await;
    assert!(cluster.slots_of(0).next().is_none(), "it has no slot left");
    for key in &keys {
        let answer = limiter.peek(u64::from(*key)).await;
        assert!(answer.is_ok(), "a dead client: {answer:?}");
    }

    let ledger = recorder.ledger();
    let foreign = rig::count(&ledger, |outcome| outcome == Outcome::ForeignReply);
    assert_eq!(foreign, 0, "{:?}", checker::outcomes(&ledger));
    let failed = rig::count(&ledger, |outcome| !outcome.is_by_store());
    row.failed(failed, ledger.len(), 0.001, rig::CALL);
    let charges = rig::charges(&direct, &ledger, |key| HIGHEST - u64::from(key) * BAND).await;
    let surplus = checker::charged(&ledger, &charges, 1).expect("I5");
    checker::own_replies(&ledger, HIGHEST, BAND).expect("I4");
    checker::nothing_broke(&ledger).expect("I7");
    let moves = moves.load(Ordering::Relaxed);
    assert!(moves > resharded as u64 + 20, "{moves} moves");
    row.figure("of them a full reshard", resharded);
    row.figure("foreign", foreign);
    row.figure("charged without a reply", surplus);
    row.answered(&ledger);
    row.tell(moves);
}
