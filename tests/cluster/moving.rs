//! Slots that move while checks of their keys come.

use fred::util::redis_keyslot;

use crate::prelude::*;
use crate::support::cluster::Meanwhile;

const CALLERS: usize = 64;
const KEYS: usize = 32;
/// Each key's slot moves six times.
const MOVES: usize = 6 * KEYS;

/// More than any bucket of these tests is charged.
const BAND: u64 = 1 << 30;

/// The outcomes of concurrent checks of some keys. What each bucket has left is in a band of its own,
/// so that a decision shows whose it is.
struct Ledger {
    keys: Vec<String>,
    seen: Mutex<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    checks: u64,
    errors: u64,
    foreign: u64,
    admitted: [u64; KEYS],
    /// Checks of which it is unknown whether they were charged.
    unknown: [u64; KEYS],
}

impl Ledger {
    async fn of(keys: Vec<String>, limiter: &Limiter) -> Arc<Self> {
        assert_eq!(keys.len(), KEYS);
        for (key, band) in keys.iter().zip(0..) {
            let taken = limiter.check_n(&**key, band * BAND).await;
            assert!(taken.expect("a decision").is_allowed());
        }
        let seen = Mutex::default();
        Arc::new(Self { keys, seen })
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().expect("no panic")
    }

    /// Makes checks in many tasks until it is over.
    async fn fill(
        self: &Arc<Self>,
        limiter: &Limiter,
        is_over: impl Fn() -> bool + Clone + Send + 'static,
    ) {
        let tasks = (0..CALLERS).map(|caller| {
            let (ledger, limiter) = (Arc::clone(self), limiter.clone());
            let is_over = is_over.clone();
            tokio::spawn(async move {
                let mut turn = caller;
                loop {
                    turn += 7;
                    let key = turn % KEYS;
                    let answer = limiter.check(&*ledger.keys[key]).await;
                    let mut seen = ledger.seen.lock().expect("no panic");
                    seen.checks += 1;
                    match answer {
                        Ok(decision) => {
                            seen.admitted[key] += u64::from(decision.is_allowed());
                            let policy = decision.policies().next().expect("a policy");
                            let band = (policy.capacity() - policy.remaining()) / BAND;
                            seen.foreign += u64::from(band != key as u64);
                        }
                        Err(error) => {
                            eprintln!("{error:?}");
                            seen.foreign += u64::from(error.is_foreign_reply());
                            seen.errors += 1;
                            seen.unknown[key] += 1;
                        }
                    }
                    drop(seen);
                    if is_over() {
                        return;
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
    }

    /// Makes at least this many checks.
    async fn fill_with(self: &Arc<Self>, limiter: &Limiter, checks: u64) {
        let most = self.seen().checks + checks;
        let ledger = Arc::clone(self);
        let is_over = move || ledger.seen().checks >= most;
        self.fill(limiter, is_over).await;
    }

    /// Makes checks until this work is done.
    async fn fill_during(
        self: &Arc<Self>,
        limiter: &Limiter,
        work: impl FnOnce() + Send + 'static,
    ) {
        let work = Arc::new(tokio::task::spawn_blocking(work));
        let working = Arc::clone(&work);
        self.fill(limiter, move || working.is_finished()).await;
        let work = Arc::into_inner(work).expect("the only handle");
        work.await.expect("no panic");
    }

    /// Asserts that exactly the acknowledged units are counted, plus some of the unknown ones.
    async fn assert_exact(&self, limiter: &Limiter) {
        let seen = self.seen();
        let (checks, errors) = (seen.checks, seen.errors);
        assert_eq!(seen.foreign, 0, "foreign replies");
        assert!(errors * 1_000 <= checks, "{errors} of {checks} checks");
        for key in 0..KEYS {
            let (admitted, unknown) = (seen.admitted[key], seen.unknown[key]);
            for units in taken(limiter, &self.keys[key]).await {
                let units = units - key as u64 * BAND;
                let is_exact = (admitted..=admitted + unknown).contains(&units);
                assert!(
                    is_exact,
                    "key-{key}: {units} counted, {admitted} acknowledged, {unknown} unknown"
                );
            }
        }
    }
}

fn keys() -> impl Iterator<Item = String> {
    (0..).map(|number: u64| format!("key-{number}"))
}

fn slot(limiter: &Limiter, key: &str) -> u16 {
    redis_keyslot(limiter.storage_keys(key)[0].as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_slots_lose_no_count_and_charge_nothing_twice() {
    let cluster = Arc::new(RedisCluster::start(3, 0));
    let limiter = per_day(&store_at(&cluster.url()), 1 << 40);
    let keys: Vec<_> = keys().take(KEYS).collect();
    let slots: Vec<_> = keys.iter().map(|key| slot(&limiter, key)).collect();
    let ledger = Ledger::of(keys, &limiter).await;
    let mover = Arc::clone(&cluster);
    let moves = move || {
        for slot in (0..MOVES).map(|turn| slots[turn % slots.len()]) {
            mover.move_slot(slot, (mover.owner(slot) + 1) % 3);
            mover.wait_until_agreed();
        }
    };
    ledger.fill_during(&limiter, moves).await;
    ledger.assert_exact(&limiter).await;
}

/// While a slot moves, Redis replies TRYAGAIN to several keys of it, possibly for minutes. They
/// are then checked one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys_of_a_slot_that_keeps_moving_are_decided_one_by_one() {
    let cluster = RedisCluster::start(3, 0);
    let policies = [
        Policy::new("bucket", TokenBucket::per_day(5)),
        Policy::new("window", FixedWindow::per_day(4)),
        Policy::new("log", SlidingLog::per_day(6)),
        Policy::new("new", FixedWindow::per_day(100)).shadow(),
    ];
    let limiter = denying_limiter(store_at(&cluster.url()), policies);
    // The shadow policy is charged for each request.
    let shadow_took = async |units: u64| {
        // A request does not wait for its shadow policy, so a peek may come before a charge.
        eventually_async("the shadow policy's charges", async || {
            let peek = limiter.peek("ann").await.expect("a decision");
            let left = || peek.shadow_policies().map(|policy| policy.remaining());
            eventually_async("the shadow policy's answer", async || left().count() == 1).await;
            left().sum::<u64>() == 100 - units
        })
        .await;
    };
    assert_eq!(count_admitted(&limiter, "ann", 1).await, 1);
    let keys = limiter.storage_keys("ann");
    let slot = cluster.slot(&keys[0]);
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    // All keys are on the first node. Then one of them is on the second.
    assert_eq!(taken(&limiter, "ann").await, [1, 1, 1]);
    let port = cluster.nodes[to].port().to_string();
    cluster.nodes[from].command(&["MIGRATE", "127.0.0.1", &port, &keys[1], "0", "5000"]);
    assert_eq!(count_admitted(&limiter, "ann", 2).await, 2);
    assert_eq!(taken(&limiter, "ann").await, [3, 3, 3]);
    shadow_took(3).await;
    let decision = limiter.check_n("ann", 2).await.expect("a decision");
    let denied: Vec<_> = decision.denied_by().map(|policy| policy.name()).collect();
    assert_eq!(denied, ["window"]);
    assert_eq!(taken(&limiter, "ann").await, [3, 3, 3]);
    assert_eq!(limiter.credit("ann", 1).await.expect("given").refunded(), 1);
    let rest = limiter.take_up_to("ann", 9).await.expect("a decision");
    assert_eq!(rest.charged(), 2);
    assert_eq!(taken(&limiter, "ann").await, [4, 4, 4]);

    // No key is on the first node anymore, and a new key comes.
    cluster.move_keys(slot, from, to);
    assert_eq!(taken(&limiter, "ann").await, [4, 4, 4]);
    limiter.reset("ann").await.expect("forgotten");
    assert_eq!(count_admitted(&limiter, "ann", 6).await, 4);
    cluster.end_move(slot, from, to);
    assert_eq!(taken(&limiter, "ann").await, [4, 4, 4]);
    shadow_took(6).await;
    assert_eq!(cluster.owner(slot), to);
}

/// What is held of a bucket moves with it, in one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_units_are_held_settled_and_lapse() {
    let cluster = RedisCluster::start(3, 0);
    let clock = Arc::new(ManualClock::new());
    let store = patient().clock(clock.clone());
    let store = store.connect(&cluster.url()).expect("a store");
    let lifetime = Duration::from_secs(60);
    let policy = Policy::new("window", FixedWindow::per_day(10)).hold_for(lifetime);
    let policy = policy.on_store_failure(OnStoreFailure::Deny);
    let limiter = Limiter::new(store, policy);
    let reserve = async |units| {
        let reserved = limiter.reserve("ann", units).await.expect("a decision");
        assert!(reserved.is_allowed(), "{units}");
        reserved
    };
    let [settled, released, left] = [reserve(4).await, reserve(3).await, reserve(1).await];
    let key = limiter.storage_keys("ann").remove(0);
    let slot = cluster.slot(&key);
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    settled.settle(1).await.expect("a settlement");
    assert_eq!(taken(&limiter, "ann").await, [5]);
    let moved = reserve(2).await;
    cluster.move_keys(slot, from, to);
    released.release().await.expect("a settlement");
    assert_eq!(taken(&limiter, "ann").await, [4]);
    let denied = limiter.reserve("ann", 7).await.expect("a decision");
    assert!(!denied.is_allowed());
    cluster.end_move(slot, from, to);
    moved.settle(2).await.expect("a settlement");
    assert_eq!(taken(&limiter, "ann").await, [4]);
    // Like a process that ends: nobody settles it.
    std::mem::forget(left);
    clock.advance(3 * lifetime);
    assert_eq!(taken(&limiter, "ann").await, [4]);
    let denied = limiter.check_n("ann", 7).await.expect("a decision");
    assert!(!denied.is_allowed());
    let stored = cluster.nodes[to].command(&["GET", &key]);
    assert!(stored.ends_with('4'), "nothing is held: {stored}");
}

/// The command after ASKING is never another caller's, however many checks share a connection:
/// Redis would redirect it back. And a script that the target does not know is sent to it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_applies_to_the_next_command_only() {
    let cluster = Arc::new(RedisCluster::start(3, 0));
    let builder = patient().connections(2);
    let limiter = per_day(&builder.connect(&cluster.url()).expect("a store"), 1 << 40);
    let keys: Vec<_> = keys().take(KEYS).collect();
    // All slots are moving, and no key is where it was.
    for key in &keys {
        let slot = slot(&limiter, key);
        let from = cluster.owner(slot);
        cluster.begin_move(slot, from, (from + 1) % 3);
    }
    let flusher = Arc::clone(&cluster);
    let flushes = Meanwhile::new(move |turn| {
        flusher.nodes[turn as usize % 3].command(&["SCRIPT", "FLUSH"]);
    });
    let ledger = Ledger::of(keys, &limiter).await;
    ledger.fill_with(&limiter, 1_500).await;
    flushes.end();
    assert_eq!(ledger.seen().errors, 0);
    ledger.assert_exact(&limiter).await;
    for node in &cluster.nodes {
        let calls = node.command(&["INFO", "commandstats"]);
        assert!(calls.contains("cmdstat_asking:"), "{calls}");
        // Redis 6.0 has no such counter.
        let errors = node.command(&["INFO", "errorstats"]);
        assert!(!errors.contains("errorstat_MOVED:"), "{errors}");
    }
}

/// Until the new owner has learned of the move, the two nodes redirect all checks to each
/// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_redirect_to_each_other_for_a_moment_are_tolerated() {
    let cluster = Arc::new(RedisCluster::start(3, 0));
    let limiter = per_day(&store_at(&cluster.url()), 1 << 40);
    let keys: Vec<_> = keys().take(KEYS).collect();
    let slots: Vec<_> = keys.iter().map(|key| slot(&limiter, key)).collect();
    let ledger = Ledger::of(keys, &limiter).await;
    let mover = Arc::clone(&cluster);
    let moves = move || {
        for slot in slots {
            let from = mover.owner(slot);
            let to = (from + 1) % 3;
            mover.begin_move(slot, from, to);
            mover.move_keys(slot, from, to);
            // This order makes them disagree.
            let (number, id) = (slot.to_string(), mover.id(to));
            mover.nodes[from].command(&["CLUSTER", "SETSLOT", &number, "NODE", &id]);
            mover.end_move(slot, from, to);
            mover.wait_until_agreed();
        }
    };
    ledger.fill_during(&limiter, moves).await;
    ledger.assert_exact(&limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_slots_of_a_node_move_to_a_new_node_and_the_old_one_leaves() {
    let of_the_first = 128;
    let mut cluster = RedisCluster::with_bounds(&[0, of_the_first, 8_000]);
    let limiter = per_day(&store_at(&cluster.url()), 1 << 40);
    let keys = keys().scan(0, |others, key| {
        let is_another = slot(&limiter, &key) >= of_the_first;
        *others += usize::from(is_another);
        Some((!is_another || *others <= KEYS / 2).then_some(key))
    });
    let keys: Vec<_> = keys.flatten().take(KEYS).collect();
    let new = cluster.add();
    let cluster = Arc::new(cluster);

    let ledger = Ledger::of(keys, &limiter).await;
    let mover = Arc::clone(&cluster);
    let reshard = move || {
        for slot in 0..of_the_first {
            mover.move_slot(slot, new);
            mover.wait_until_agreed();
        }
    };
    ledger.fill_during(&limiter, reshard).await;
    let mut cluster = Arc::try_unwrap(cluster).expect("the only handle");
    cluster.remove(0);
    ledger.fill_with(&limiter, 5_000).await;
    ledger.assert_exact(&limiter).await;
    assert_eq!(count_admitted(&limiter, "a new caller", 3).await, 3);
}

#[tokio::test]
async fn connections_close_with_the_last_slot_of_a_node_and_with_the_store() {
    let of_the_first = 32;
    let cluster = RedisCluster::with_bounds(&[0, of_the_first, 8_000]);
    let connections = |place: usize| {
        let clients = cluster.nodes[place].command(&["CLIENT", "LIST", "TYPE", "normal"]);
        // One connection is that of this command.
        clients.lines().count() - 1
    };
    let limiter = per_day(&store_at(&cluster.url()), 3);
    let key = keys().find(|key| slot(&limiter, key) < of_the_first);
    let key = key.expect("a key");
    assert_eq!(count_admitted(&limiter, &key, 2).await, 2);
    eventually_async("all connected", || async {
        (0..3).all(|place| connections(place) > 0)
    })
    .await;

    for slot in 0..of_the_first {
        cluster.move_slot(slot, 1);
    }
    assert_eq!(count_admitted(&limiter, &key, 2).await, 1);
    eventually_async("no connection", || async { connections(0) == 0 }).await;
    assert!(connections(1) > 0);

    // The second node still has a connection by which keys were moved.
    drop(limiter);
    eventually_async("no connection", || async { connections(2) == 0 }).await;
}
