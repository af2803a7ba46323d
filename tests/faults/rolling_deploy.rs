//! A rolling deployment, under load.

use std::time::Duration;

use tower_throttle::TokenBucket;

use crate::support::{DEADLINE, RedisServer};
use crate::{
    app::App,
    checker,
    figures::{ms, or_long, tell},
    ledger::{Entry, Outcome},
    load::HOT,
    rig,
};

const PROCESSES: u8 = 3;
const HIGHEST: u64 = 1_000_000_000;

/// What the processes of this version admitted of the hot key is charged under this version's
/// name of it. Returns the surplus.
async fn charged(server: &RedisServer, version: &str, ledger: &[Entry]) -> u64 {
    let is_hot = |entry: &&Entry| entry.key == HOT;
    let hot: Vec<_> = ledger.iter().filter(is_hot).cloned().collect();
    let store = rig::builder().timeout(DEADLINE).prefix(version);
    let store = store.connect(&server.url()).expect("a store");
    let limiter = rig::limiter(store, TokenBucket::without_refill(HIGHEST));
    let charges = rig::charges(&limiter, &hot, |_| HIGHEST).await;
    checker::own_replies(&hot, HIGHEST, HIGHEST).expect("I4");
    checker::charged(&hot, &charges, 1).expect("I5")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_processes_fail_no_request() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let start = |process| App::start(process, &server.url(), 0, HIGHEST);
    let mut apps: Vec<App> = (0..PROCESSES).map(start).collect();
    let rounds = or_long(1, 20);
    let mut ledger = Vec::new();
    for round in 1..=rounds {
        for place in 0..PROCESSES {
            // They work for a while, as applications do between two restarts.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let new = start(round * PROCESSES + place);
            let old = std::mem::replace(&mut apps[usize::from(place)], new);
            ledger.extend(old.stop());
        }
    }
    for app in apps {
        ledger.extend(app.stop());
    }

    let failed = rig::count(&ledger, |outcome| !outcome.is_by_store());
    assert_eq!(failed, 0, "{:?}", checker::outcomes(&ledger));
    let (_, in_time) = rig::patience();
    let latency = checker::answered(&ledger, in_time).expect("I2");
    checker::nothing_broke(&ledger).expect("I7");
    let surplus = charged(&server, "tt", &ledger).await;
    assert_eq!(surplus, 0, "every reply came");
    let restarts = u64::from(rounds) * u64::from(PROCESSES);
    tell(
        "rolling deploy",
        restarts,
        &[
            ("failed", format!("{failed} of {}", ledger.len())),
            ("p99.9", ms(latency.p999)),
            ("longest", ms(latency.most)),
            (
                "denied",
                rig::count(&ledger, |outcome| {
                    outcome == Outcome::Denied(crate::ledger::By::Store)
                })
                .to_string(),
            ),
        ],
    );
}

/// Half of the processes have keys of another form. Both run side by side, each with its own
/// counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_share_no_key() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let start = |version, process| App::of_version(version, process, &server.url(), 0, HIGHEST);
    let rounds = or_long(1, 10);
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let first = round * 4;
        let old_apps = [start("tt", first), start("tt", first + 1)];
        tokio::time::sleep(Duration::from_millis(500)).await;
        let new_apps = [start("next", first + 2), start("next", first + 3)];
        tokio::time::sleep(Duration::from_millis(500)).await;
        old.extend(old_apps.into_iter().flat_map(App::stop));
        new.extend(new_apps.into_iter().flat_map(App::stop));
    }
    let keys = server.keys();
    for (version, ledger) in [("tt", &old), ("next", &new)] {
        let failed = rig::count(ledger, |outcome| !outcome.is_by_store());
        assert_eq!(failed, 0, "{:?}", checker::outcomes(ledger));
        assert!(keys.iter().any(|key| key.starts_with(version)));
        // A single charge by the other version would be one too many.
        assert_eq!(charged(&server, version, ledger).await, 0);
    }
    tell(
        "rolling deploy versions",
        u64::from(rounds),
        &[
            ("failed", format!("0 of {}", old.len() + new.len())),
            ("charged under the other's name", "0".to_owned()),
        ],
    );
}
