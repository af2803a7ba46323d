//! Nodes that die, are replaced, or freeze.

use crate::prelude::*;

/// The timeout of checks of a node that hangs: longer than this machine may stall.
const TIMEOUT: Duration = Duration::from_secs(2);
/// For each node, each in a task of its own.
const CALLERS: usize = 20;

/// Returns a store with room for the callers of one node only: a node that hangs must not take
/// the room of the others.
fn narrow(cluster: &RedisCluster, timeout: Duration) -> RedisStore {
    let builder = hasty().timeout(timeout);
    let builder = builder.max_in_flight(CALLERS + 4);
    builder.connect(&cluster.url()).expect("a store")
}

fn callers_of(cluster: &RedisCluster, node: usize, limiter: &Limiter) -> Vec<String> {
    cluster.callers_on(node, limiter).take(CALLERS).collect()
}

async fn all_decide(limiter: &Limiter, callers: &[String]) -> bool {
    for caller in callers {
        if limiter.check(&**caller).await.is_err() {
            return false;
        }
    }
    true
}

/// What tasks saw that made checks of these callers for some time.
#[derive(Debug, Default)]
struct Seen {
    checks: usize,
    errors: usize,
    last_error: Option<StoreError>,
}

/// Makes checks of these callers until this is ended.
struct Asking {
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<Seen>,
}

impl Asking {
    fn start(limiter: &Limiter, callers: &[String]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ask = |caller: &String| {
            let (limiter, caller) = (limiter.clone(), caller.clone());
            let is_over = Arc::clone(&is_over);
            async move {
                let mut seen = Seen::default();
                while !is_over.load(Ordering::Relaxed) {
                    let answer = limiter.check(&*caller).await;
                    seen.checks += 1;
                    seen.errors += usize::from(answer.is_err());
                    seen.last_error = answer.err().or(seen.last_error);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                seen
            }
        };
        let tasks = callers.iter().map(ask).collect();
        Self { is_over, tasks }
    }

    async fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for seen in self.tasks.join_all().await {
            all.checks += seen.checks;
            all.errors += seen.errors;
            all.last_error = seen.last_error.or(all.last_error);
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_replaced_and_other_slots_are_unaffected() {
    let mut cluster = RedisCluster::start(3, 3);
    let limiter = per_day(&narrow(&cluster, DEADLINE), 1 << 40);
    let [hurt, well] = [0, 1].map(|node| callers_of(&cluster, node, &limiter));
    for callers in [&hurt, &well] {
        eventually_async("decisions", || all_decide(&limiter, callers)).await;
    }

    cluster.nodes[0].kill();
    let asking = Asking::start(&limiter, &well);
    let error = limiter
        .check(&*hurt[0])
        .await
        .expect_err("no server listens");
    assert!(error.is_timeout() || error.is_unavailable(), "{error:?}");
    // The replica of the first is the fourth.
    eventually_async("an election", || async {
        let info = cluster.nodes[3].try_command(&["INFO", "replication"]);
        info.is_ok_and(|info| info.contains("role:master"))
    })
    .await;
    eventually_async("decisions", || all_decide(&limiter, &hurt)).await;
    let seen = asking.end().await;
    eprintln!("elsewhere: {seen:?}");
    assert_eq!(seen.errors, 0, "{seen:?}");
    // The new primary continues with the counts that it received.
    let before = taken(&limiter, &hurt[0]).await[0];
    assert_eq!(count_admitted(&limiter, &hurt[0], 5).await, 5);
    assert_eq!(taken(&limiter, &hurt[0]).await[0], before + 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_while_all_are_well_loses_nothing() {
    let cluster = Arc::new(RedisCluster::start(3, 3));
    let limiter = per_day(&store_at(&cluster.url()), 1 << 40);
    let callers = callers_of(&cluster, 0, &limiter);
    eventually_async("decisions", || all_decide(&limiter, &callers)).await;
    let before = taken(&limiter, &callers[0]).await[0];
    let asking = Asking::start(&limiter, &callers);
    cluster.nodes[3].command(&["CLUSTER", "FAILOVER"]);
    eventually_async("a new primary", || async {
        let info = cluster.nodes[3].command(&["INFO", "replication"]);
        info.contains("role:master")
    })
    .await;
    // All are decided by the new one before it is over.
    let answers = || limiter.metrics().requests.total();
    let after = answers() + 10 * callers.len() as u64;
    eventually_async("answers of the new primary", || async {
        answers() >= after
    })
    .await;
    let seen = asking.end().await;
    eprintln!("{seen:?}");
    assert_eq!(seen.errors, 0, "{seen:?}");
    let mut sum = 0;
    for caller in &callers {
        sum += taken(&limiter, caller).await[0];
    }
    // One check of each was made before.
    assert_eq!(sum as usize, seen.checks + callers.len() * before as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_primary_hurts_only_its_own_slots() {
    let cluster = RedisCluster::start(3, 0);
    let limiter = per_day(&narrow(&cluster, TIMEOUT), 1 << 40);
    let [hurt, well, also_well] = [0, 1, 2].map(|node| callers_of(&cluster, node, &limiter));
    let well = [well, also_well].concat();
    for callers in [&hurt, &well] {
        eventually_async("decisions", || all_decide(&limiter, callers)).await;
    }

    let frozen = Frozen::new(&cluster.nodes[0]);
    let [hurt_asking, well_asking] = [&hurt, &well].map(|callers| Asking::start(&limiter, callers));
    let failures = || limiter.metrics().store.failures.total();
    let enough = failures() + 20 * CALLERS as u64;
    eventually_async("failures", || async { failures() >= enough }).await;
    let (hurt_saw, well_saw) = (hurt_asking.end().await, well_asking.end().await);
    eprintln!("frozen: {hurt_saw:?}\nelsewhere: {well_saw:?}");
    assert_eq!(hurt_saw.errors, hurt_saw.checks);
    assert_eq!(well_saw.errors, 0, "{well_saw:?}");

    drop(frozen);
    eventually_async("decisions", || all_decide(&limiter, &hurt)).await;
}
