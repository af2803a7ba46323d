//! Thousands of permits in four processes, while crowds hang up and processes are killed: there
//! is never one permit too many, and no check of other callers fails.
//!
//! Each process records when it got a permit, right after, and when it releases one, right
//! before. So at each instant, at least the permits of this ledger are held.
//!
//! `TT_FAULTS=long` runs it for two minutes, with the default deadline and 10,000 permits. The
//! short form has a fifth of them, and ends when the limit is near again after two were killed.

use std::{
    thread::JoinHandle,
    time::{Instant, SystemTime},
};

use tokio::{runtime::Runtime, time::sleep};
use tower_throttle::RedisStore;

use crate::{
    other::Other,
    support::{denying_limiter, prelude::*, us_since_epoch},
};

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

/// One process, and what it has recorded so far.
struct Process {
    other: Other,
    reader: JoinHandle<()>,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Default)]
struct Ledger {
    /// How many permits came or went in which microsecond.
    moves: Vec<(u64, i64)>,
    held: i64,
    asked: i64,
    failed: i64,
}

impl Process {
    fn start(url: &str, seed: u64) -> Self {
        let mut other = Other::start(&["permit_storm", url, &seed.to_string()]);
        let lines = other.take_lines();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let written = Arc::clone(&ledger);
        let reader = std::thread::spawn(move || {
            // Not the line that it was writing when it was killed.
            for line in lines.map_while(Result::ok) {
                written.lock().expect("a ledger").read(&line);
            }
        });
        Self {
            other,
            reader,
            ledger,
        }
    }

    /// Returns all that it recorded. Unless `is_killed`, it releases its permits first.
    fn end(mut self, is_killed: bool) -> Ledger {
        self.other.end(is_killed);
        let ended_us = us_since_epoch(SystemTime::now());
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

impl Ledger {
    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let Ok(numbers) = words[1..]
            .iter()
            .map(|word| word.parse())
            .collect::<Result<Vec<i64>, _>>()
        else {
            return;
        };
        match (words[0], &numbers[..]) {
            ("moved", [at_us, by]) => {
                self.moves.push((*at_us as u64, *by));
                self.held += by;
            }
            ("asked", [asked, failed]) => (self.asked, self.failed) = (*asked, *failed),
            _ => {}
        }
    }
}

/// Waits until these processes hold nearly all permits, as far as they have recorded it.
fn wait_for_the_limit(processes: &[Process]) {
    let held = |process: &Process| process.ledger.lock().expect("a ledger").held;
    eventually("as many permits as there may be", || {
        std::thread::sleep(Duration::from_millis(10));
        processes.iter().map(held).sum::<i64>() > limit() as i64 * 9 / 10
    });
}

pub(crate) fn permit_storm() {
    let server = RedisServer::start();
    let mut random = Random::new();
    let mut start = || Process::start(&server.url(), random.next());
    let mut processes: Vec<Process> = (0..PROCESSES).map(|_| start()).collect();
    let mut ledgers = Vec::new();
    let started = Instant::now();
    let mut replace_first = |processes: &mut Vec<Process>| {
        ledgers.push(processes.remove(0).end(true));
        processes.push(start());
    };
    if is_long() {
        while started.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(2 * LIFETIME);
            replace_first(&mut processes);
        }
    } else {
        wait_for_the_limit(&processes);
        replace_first(&mut processes);
        replace_first(&mut processes);
        // The permits of those that were killed lapse, and others get them.
        wait_for_the_limit(&processes);
    }
    ledgers.extend(processes.into_iter().map(|process| process.end(false)));
    eventually("all permits back", || {
        server.keys().iter().all(|key| !key.ends_with("held"))
    });

    let mut moves: Vec<(u64, i64)> = ledgers.iter().flat_map(|one| one.moves.clone()).collect();
    // At one instant, releases come first, because they are recorded before.
    moves.sort_unstable();
    let (mut held, mut most) = (0, 0);
    for (_, by) in &moves {
        held += by;
        most = most.max(held);
    }
    let asked: i64 = ledgers.iter().map(|ledger| ledger.asked).sum();
    let failed: i64 = ledgers.iter().map(|ledger| ledger.failed).sum();
    let limit = limit() as i64;
    println!(
        "{} moves, most held {most} of {limit}; {asked} checks of others",
        moves.len()
    );
    assert!(most <= limit, "{most} permits of {limit}");
    assert!(most > limit * 9 / 10, "the limit was never near: {most}");
    assert_eq!(failed, 0, "of {asked} checks of others");
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
        let store = match is_long() {
            true => hasty(),
            // Many tests may run at a time.
            false => patient(),
        };
        let store = store.connect(url).expect("a store");
        let policy = Policy::new("held", Concurrency::new(limit()).lifetime(LIFETIME));
        let limiter = denying(&store, policy);
        let bystander = tokio::spawn(bystander(store.clone(), Arc::clone(&is_over)));
        hold(&limiter, &is_over, Random::from_seed(seed)).await;
        let (asked, failed) = bystander.await.expect("no panic");
        println!("asked {asked} {failed}");
        store.shutdown().await;
    });
}

fn denying(store: &RedisStore, policy: Policy) -> Limiter {
    denying_limiter(store.clone(), [policy])
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
            println!("asked {asked} {failed}");
        }
        sleep(Duration::from_millis(5)).await;
    }
    (asked, failed)
}

fn moved(by: i64) {
    println!("moved {} {by}", us_since_epoch(SystemTime::now()));
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
            // With the default deadline, some may fail.
            let permit = permit.expect("no panic").ok();
            held.extend(permit.filter(Permit::is_allowed));
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
