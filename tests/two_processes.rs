//! Exact counts under concurrency: 64 racing tasks over two processes on one Redis.
//!
//! This test has no harness: it starts itself a second time to have another process.

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use tokio::{runtime::Runtime, sync::Barrier};
use tower_throttle::{FixedWindow, Limiter, Policy, RedisStore, TokenBucket};

use common::RedisServer;

const TASKS: usize = 32;
const CHECKS_PER_TASK: usize = 20;
/// What can pass in each race; far less than is asked.
const CAPACITY: u64 = 100;
const SMALLER_CAPACITY: u64 = 37;

/// A race: its name, its limiter, how much each check takes, how many must pass.
struct Race {
    name: &'static str,
    limiter: fn(RedisStore) -> Limiter,
    units: u64,
    admitted: u64,
    /// What must be left in each policy.
    remaining: &'static [u64],
}

const RACES: [Race; 4] = [
    Race {
        name: "token bucket",
        limiter: |store| Limiter::new(store, bucket()),
        units: 1,
        admitted: CAPACITY,
        remaining: &[0],
    },
    Race {
        name: "fixed window",
        limiter: |store| Limiter::new(store, window(CAPACITY)),
        units: 1,
        admitted: CAPACITY,
        remaining: &[0],
    },
    Race {
        name: "a cost of 3",
        limiter: |store| Limiter::new(store, Policy::new("three", bucket())),
        units: 3,
        admitted: CAPACITY / 3,
        remaining: &[CAPACITY % 3],
    },
    Race {
        name: "stacked, all or none",
        limiter: |store| {
            Limiter::builder()
                .store(store)
                .policy(Policy::new("large", bucket()))
                .policy(Policy::new("small", window(SMALLER_CAPACITY)))
                .policy(Policy::new("everyone", bucket()).shared())
                .build()
                .expect("a limiter")
        },
        units: 1,
        admitted: SMALLER_CAPACITY,
        remaining: &[CAPACITY - SMALLER_CAPACITY, 0, CAPACITY - SMALLER_CAPACITY],
    },
];

/// One token comes back in 14 minutes: none during the test.
fn bucket() -> TokenBucket {
    TokenBucket::per_day(CAPACITY)
}

fn window(limit: u64) -> FixedWindow {
    FixedWindow::per_day(limit)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("--other-process"), Some(url)) => other_process(&url),
        // As a test runner asks for the tests of a binary.
        (Some("--list"), _) => println!("two_processes: test"),
        _ => races(),
    }
}

fn races() {
    let server = RedisServer::start();
    let mut other = Command::new(std::env::current_exe().expect("this program"))
        .args(["--other-process", &server.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let mut lines = BufReader::new(other.stdout.take().expect("its output")).lines();
    let mut said = || lines.next().expect("a line").expect("text");

    let runtime = Runtime::new().expect("a runtime");
    let inside = runtime.enter();
    let store = connect(&server.url());
    for race in &RACES {
        assert_eq!(said(), "ready");
        start(&mut other);
        let here = runtime.block_on(run(race, &store));
        let there: u64 = said().parse().expect("a count");
        assert_eq!(
            here + there,
            race.admitted,
            "{}: {here} + {there}",
            race.name
        );

        let peek = runtime.block_on((race.limiter)(store.clone()).peek("ann"));
        let remaining = peek.expect("a decision");
        let remaining: Vec<u64> = remaining
            .policies()
            .map(|policy| policy.remaining())
            .collect();
        assert_eq!(remaining, race.remaining, "{}", race.name);
        server.assert_all_keys_expire();
        server.command(&["FLUSHALL"]);
        println!(
            "{}: {here} here + {there} there = {} ... ok",
            race.name, race.admitted
        );
    }
    drop(inside);
    assert!(other.wait().expect("an end").success());
    println!("\ntest result: ok. {} passed; 0 failed", RACES.len());
}

fn other_process(url: &str) {
    let runtime = Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let store = connect(url);
    for race in &RACES {
        println!("ready");
        let mut go = String::new();
        std::io::stdin().read_line(&mut go).expect("a sign to go");
        println!("{}", runtime.block_on(run(race, &store)));
    }
}

fn connect(url: &str) -> RedisStore {
    let store = RedisStore::builder()
        .deadline(common::DEADLINE)
        .connect(url);
    store.expect("a store")
}

fn start(other: &mut Child) {
    let stdin = other.stdin.as_mut().expect("its input");
    stdin.write_all(b"go\n").expect("a sign to go");
}

/// All tasks start together; the number of admissions.
async fn run(race: &Race, store: &RedisStore) -> u64 {
    let limiter = (race.limiter)(store.clone());
    let units = race.units;
    let barrier = Arc::new(Barrier::new(TASKS));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (limiter, barrier) = (limiter.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                let mut admitted = 0;
                for _ in 0..CHECKS_PER_TASK {
                    let decision = limiter.check_n("ann", units).await.expect("a decision");
                    admitted += u64::from(decision.is_allowed());
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.expect("no panic");
    }
    admitted
}
