//! Thousands of permits in four processes, while crowds hang up and processes are killed: there
//! is never one permit too many, and no check of other callers fails.
//!
//! Each process records when it got a permit, right after, and when it releases one, right
//! before. So at each instant, at least the permits of this ledger are held.
//!
//! `TT_FAULTS=long` runs it for two minutes, with the default deadline and 10,000 permits. The
//! short form has a fifth of them, and ends when the limit is near again after two were killed.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{runtime::Runtime, time::sleep};
use tower_throttle::RedisStore;

use crate::support::prelude::*;

const PROCESSES: usize = 4;

/// How many permits there are.
fn limit() -> u64 {
    if is_long() { 10_000 } else { 2_000 }
}

/// What each process tries to hold: all together try to hold more than the limit.
fn each() -> usize {
    limit() as usize * 3 / 10
}

const LIFETIME: Duration = Duration::from_secs(4);

fn is_long() -> bool {
    std::env::var("TT_FAULTS").is_ok_and(|form| form == "long")
}

/// The same clock for all processes of this machine.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.expect("a clock").as_micros()).expect("a time")
}

/// One process, and what it has recorded so far.
struct Other {
    child: Child,
    reader: JoinHandle<()>,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Default)]
struct Ledger {
    /// How many permits came or went in which microsecond.
    moves: Vec<(u64, i64)>,
    held: i64,
    asked: u64,
    failed: u64,
    refused: u64,
}

impl Other {
    fn start(url: &str, seed: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--other-process", "permit_storm", url, &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let written = Arc::clone(&ledger);
        let reader = std::thread::spawn(move || {
            for line in output.lines() {
                // The line that it was writing when it was killed.
                let Ok(line) = line else { break };
                let words: Vec<&str> = line.split(' ').collect();
                let mut ledger = written.lock().expect("a ledger");
                match words[..] {
                    ["moved", at_us, by] => {
                        let (Ok(at_us), Ok(by)) = (at_us.parse(), by.parse::<i64>()) else {
                            continue;
                        };
                        ledger.moves.push((at_us, by));
                        ledger.held += by;
                    }
                    ["asked", asked, failed, refused] => {
                        let numbers = [asked, failed, refused].map(str::parse::<u64>);
                        let [Ok(asked), Ok(failed), Ok(refused)] = numbers else {
                            continue;
                        };
                        (ledger.asked, ledger.failed) = (asked, failed);
                        ledger.refused = refused;
                    }
                    _ => {}
                }
            }
        });
        Self {
            child,
            reader,
            ledger,
        }
    }

    /// Returns all that it recorded. Unless `is_killed`, it releases its permits first.
    fn end(mut self, is_killed: bool) -> Ledger {
        if is_killed {
            self.child.kill().expect("a kill");
        } else {
            drop(self.child.stdin.take());
        }
        self.child.wait().expect("an end");
        let ended_us = now_us();
        self.reader.join().expect("all lines");
        let mut ledger = std::mem::take(&mut *self.ledger.lock().expect("a ledger"));
        if is_killed {
            ledger.moves.push((ended_us, -ledger.held));
        } else {
            assert_eq!(ledger.held, 0, "the end of its permits");
        }
        ledger
    }
}

/// Waits until these processes hold nearly all permits, as far as they have recorded it.
fn wait_for_the_limit(others: &[Other]) {
    let held = |other: &Other| other.ledger.lock().expect("a ledger").held;
    eventually("as many permits as there may be", || {
        std::thread::sleep(Duration::from_millis(10));
        others.iter().map(held).sum::<i64>() > limit() as i64 * 9 / 10
    });
}

pub(crate) fn permit_storm() {
    let server = RedisServer::start();
    let mut random = Random::new();
    let mut start = |server: &RedisServer| Other::start(&server.url(), random.next());
    let mut others: Vec<Other> = (0..PROCESSES).map(|_| start(&server)).collect();
    let (mut ledgers, mut kills) = (Vec::new(), 0);
    let started = Instant::now();
    let mut replace_first = |others: &mut Vec<Other>| {
        ledgers.push(others.remove(0).end(true));
        others.push(start(&server));
        kills += 1;
    };
    if is_long() {
        while started.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(2 * LIFETIME);
            replace_first(&mut others);
        }
    } else {
        wait_for_the_limit(&others);
        replace_first(&mut others);
        replace_first(&mut others);
        // The permits of those that were killed lapse, and others get them.
        wait_for_the_limit(&others);
    }
    let length = started.elapsed();
    let cpu_ms = server_cpu_ms(&server);
    let calls = calls(&server);
    for other in others {
        ledgers.push(other.end(false));
    }
    let all_ended = Instant::now();
    eventually("all permits back", || {
        server.keys().iter().all(|key| !key.ends_with("held"))
    });
    let back_after = all_ended.elapsed();

    let mut moves: Vec<(u64, i64)> = ledgers.iter().flat_map(|one| one.moves.clone()).collect();
    // At one instant, releases come first, because they are recorded before.
    moves.sort_unstable();
    let (mut held, mut most) = (0, 0);
    for (_, by) in &moves {
        held += by;
        most = most.max(held);
    }
    let sum = |of: fn(&Ledger) -> u64| ledgers.iter().map(of).sum::<u64>();
    let [asked, failed, refused] = [
        sum(|ledger| ledger.asked),
        sum(|ledger| ledger.failed),
        sum(|ledger| ledger.refused),
    ];
    let limit = limit();
    println!(
        "{kills} kills, {} moves, most held {most} of {limit}; of {asked} checks of others {failed} \
         failed; {refused} acquires failed; Redis: {cpu_ms} ms CPU in {} s, {calls} script calls; \
         all back after {back_after:?}",
        moves.len(),
        length.as_secs(),
    );
    assert!(most <= limit as i64, "{most} permits of {limit}");
    assert!(
        most > limit as i64 * 9 / 10,
        "the limit was never near: {most}"
    );
    assert_eq!(failed, 0, "of {asked} checks of others");
    println!("\ntest result: ok. 1 passed; 0 failed");
}

fn server_cpu_ms(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "cpu"]);
    let seconds = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split(':').nth(1));
        value
            .and_then(|value| value.trim().parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    ((seconds("used_cpu_user:") + seconds("used_cpu_sys:")) * 1_000.0) as u64
}

fn calls(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let line = info.lines().find(|line| line.contains("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

pub(crate) fn other_process(url: &str, seed: &str) {
    let seed = seed.parse().expect("a seed");
    let runtime = Runtime::new().expect("a runtime");
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut line = String::new();
            let _ = std::io::stdin().read_line(&mut line);
            is_over.store(true, Ordering::SeqCst);
        }
    });
    runtime.block_on(async {
        let store = RedisStore::builder();
        let store = match is_long() {
            true => store,
            // Many tests may run at a time.
            false => store.timeout(DEADLINE),
        };
        let store = store.connect(url).expect("a store");
        let policy = Policy::new("held", Concurrency::new(limit()).lifetime(LIFETIME));
        let limiter = denying(&store, policy);
        let bystander = tokio::spawn(bystander(store.clone(), Arc::clone(&is_over)));
        hold(&limiter, &is_over, Random::from_seed(seed)).await;
        let (asked, failed) = bystander.await.expect("no panic");
        println!("asked {asked} {failed} {}", REFUSED.load(Ordering::SeqCst));
        store.shutdown().await;
    });
}

/// How many calls of `acquire` failed. With the default deadline, some may.
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn denying(store: &RedisStore, policy: Policy) -> Limiter {
    Limiter::builder()
        .store(store.clone())
        .policy(policy)
        .on_store_failure(OnStoreFailure::Deny)
        .build()
        .expect("a limiter")
}

/// Other callers of the same store, which hold nothing.
async fn bystander(store: RedisStore, is_over: Arc<AtomicBool>) -> (u64, u64) {
    let limiter = denying(&store, TokenBucket::per_second(1_000_000).into());
    while limiter.check("bob").await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    let (mut asked, mut failed) = (0, 0);
    while !is_over.load(Ordering::SeqCst) {
        asked += 1;
        if let Err(error) = limiter.check(asked % 100).await {
            failed += 1;
            eprintln!("a check of others failed: {error:?}");
        }
        if asked % 100 == 0 {
            println!("asked {asked} {failed} {}", REFUSED.load(Ordering::SeqCst));
        }
        sleep(Duration::from_millis(5)).await;
    }
    (asked, failed)
}

fn moved(by: i64) {
    println!("moved {} {by}", now_us());
}

/// Takes as many permits as this process tries to hold, and now and then releases many at once.
async fn hold(limiter: &Limiter, is_over: &AtomicBool, mut random: Random) {
    let mut held: Vec<Permit> = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let mut asked = JoinSet::new();
        for _ in 0..64.min(each().saturating_sub(held.len())) {
            let limiter = limiter.clone();
            asked.spawn(async move {
                let permit = limiter.acquire("ann", Duration::ZERO).await;
                if permit.as_ref().is_ok_and(Permit::is_allowed) {
                    moved(1);
                }
                permit
            });
        }
        while let Some(permit) = asked.join_next().await {
            match permit.expect("no panic") {
                Ok(permit) if permit.is_allowed() => held.push(permit),
                Ok(_) => {}
                Err(error) => {
                    if REFUSED.fetch_add(1, Ordering::SeqCst) == 0 {
                        eprintln!("an acquire failed: {error:?}");
                    }
                }
            }
        }
        match random.below(100) {
            // A client hangs up: up to thousands of streams at once.
            0 => {
                let left = random.below(held.len() as u64 + 1) as usize;
                let crowd = held.split_off(left);
                moved(-(crowd.len() as i64));
                drop(crowd);
            }
            // Other clients hang up before they have an answer.
            1 => {
                let mut crowd = JoinSet::new();
                for _ in 0..1_000 {
                    let limiter = limiter.clone();
                    crowd.spawn(async move { limiter.acquire("ann", Duration::ZERO).await });
                }
                sleep(Duration::from_micros(random.below(3_000))).await;
                crowd.shutdown().await;
            }
            _ => sleep(Duration::from_millis(random.below(10))).await,
        }
    }
    moved(-(held.len() as i64));
}
