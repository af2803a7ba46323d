//! A process that is killed between the hold and its settlement.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tokio::runtime::Runtime;
use tower_throttle::{
    Limiter, ManualClock, OnStoreFailure, Policy, RedisStore, TokenBucket, metrics::Settlements,
};

use crate::support::{DEADLINE, RedisServer, eventually};

const LIFETIME: Duration = Duration::from_secs(60);

fn limiter(url: &str, clock: Arc<ManualClock>) -> Limiter {
    let builder = RedisStore::builder().timeout(DEADLINE).clock(clock);
    let policy = Policy::new("tokens", TokenBucket::without_refill(100))
        .hold_for(LIFETIME)
        .on_store_failure(OnStoreFailure::Deny);
    Limiter::new(builder.connect(url).expect("a store"), policy)
}

/// Holds 40 units until it is killed.
pub(crate) fn other_process(url: &str) {
    Runtime::new().expect("a runtime").block_on(async {
        let limiter = limiter(url, Arc::default());
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        assert!(reserved.is_allowed());
        println!("held");
        std::future::pending::<()>().await;
    });
}

fn start(url: &str) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut other = Command::new(program)
        .args(["--other-process", "killed", url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let mut line = String::new();
    let output = other.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line.trim_end(), "held");
    other
}

/// What a killed process held is charged in full once its lifetime is over, and once only.
pub(crate) fn what_a_killed_process_held_is_charged_once() {
    let server = RedisServer::start();
    let mut other = start(&server.url());
    other.kill().expect("a killed process");
    other.wait().expect("its end");
    Runtime::new().expect("a runtime").block_on(async {
        let clock = Arc::new(ManualClock::new());
        let limiter = limiter(&server.url(), Arc::clone(&clock));
        let left = async || {
            // A check that may write, so that what has lapsed is charged.
            let decision = limiter.check_n("ann", 0).await.expect("a decision");
            decision.policies().next().expect("a policy").remaining()
        };
        assert_eq!(left().await, 60);
        assert_eq!(server.command(&["DBSIZE"]), "1", "nothing is charged yet");
        clock.advance(LIFETIME * 2);
        for _ in 0..4 {
            assert_eq!(left().await, 60);
            eventually("nothing is held", || server.command(&["DBSIZE"]) == "1");
            clock.advance(LIFETIME);
        }
        // No process has settled it.
        assert_eq!(limiter.metrics().store.settlements, Settlements::default());
        let reserved = limiter.reserve("ann", 60).await.expect("a decision");
        assert!(reserved.is_allowed());
        reserved.release().await.expect("a settlement");
    });
}
