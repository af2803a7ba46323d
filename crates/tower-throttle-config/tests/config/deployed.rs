//! A process with limits from a file that ends under load, as at each deployment.

use std::{env, process::Command, time::Duration};

use tokio::runtime::Runtime;
use tower_throttle::Limiter;
use tower_throttle_config::{Config, Limits};

use crate::support::RedisServer;

/// Nothing comes back by itself within the hour of a test.
const FILE: &str = r#"
version = 1
store = { redis = "${TT_TEST_REDIS}", timeout = "45s" }
policy = [
    { name = "leased", quota = "1000 without refill", lease = true },
    { name = "at once", quota = "3 at once" },
    { name = "held", quota = "fixed window of 100 per day", hold_for = "60s" },
]
limiter.leased.policies = ["leased"]
limiter.at-once.policies = ["at once"]
limiter.held.policies = ["held"]
"#;

const CALLERS: u64 = 20;
const CHECKS: u64 = 40;

fn limits() -> (Limits, [Limiter; 3]) {
    let limits = Config::from_toml(FILE).expect("a file");
    let limits = limits.build().expect("limits");
    let limiters = ["leased", "at-once", "held"];
    let limiters = limiters.map(|name| limits.limiter(name).expect("a limiter"));
    (limits, limiters)
}

/// Ends while each caller has all permits, holds half of its units, and has leased some.
fn other_process() {
    Runtime::new().expect("a runtime").block_on(async {
        let (limits, [leased, at_once, held]) = limits();
        let mut taken = Vec::new();
        for caller in 0..CALLERS {
            for _ in 0..CHECKS {
                let decision = leased.check(caller).await.expect("a decision");
                assert!(decision.is_allowed());
            }
            for _ in 0..3 {
                let permit = at_once.acquire(caller, Duration::ZERO).await;
                taken.push(permit.expect("a permit"));
            }
            let reserved = held.reserve(caller, 50).await.expect("a decision");
            assert!(reserved.is_allowed());
        }
        drop(taken);
        limits.shutdown().await;
    });
}

/// The test starts itself once more, as the process that ends.
#[test]
fn a_process_with_limits_from_a_file_leaves_nothing_behind() {
    const REDIS: &str = "TT_TEST_REDIS";
    const NAME: &str = "deployed::a_process_with_limits_from_a_file_leaves_nothing_behind";

    if env::var_os(REDIS).is_some() {
        return other_process();
    }
    let server = RedisServer::start();
    let program = env::current_exe().expect("this program");
    for round in 1..=2 {
        let mut command = Command::new(&program);
        command.args(["--exact", NAME]);
        let status = command.env(REDIS, server.url()).status();
        assert!(status.expect("another process").success());
        // What is held of a unit that nobody settled is charged; all else is back.
        Runtime::new().expect("a runtime").block_on(async {
            let text = FILE.replace("${TT_TEST_REDIS}", &server.url());
            let limits = Config::from_toml(&text).expect("a file");
            let limits = limits.build().expect("limits");
            let left = async |name: &str, caller: u64| {
                let limiter = limits.limiter(name).expect("a limiter");
                let decision = limiter.peek(caller).await.expect("a decision");
                decision.policies().next().expect("a policy").remaining()
            };
            for caller in 0..CALLERS {
                assert_eq!(
                    left("leased", caller).await,
                    1_000 - round * CHECKS,
                    "{caller}"
                );
                assert_eq!(left("at-once", caller).await, 3, "{caller}");
                assert_eq!(left("held", caller).await, 100 - round * 50, "{caller}");
            }
        });
    }
}
