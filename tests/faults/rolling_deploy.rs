//! A rolling deployment, under load.

use crate::prelude::*;

const PROCESSES: u8 = 3;
const HIGHEST: u64 = 1_000_000_000;

/// The work of an application between two restarts.
fn work() -> Duration {
    Duration::from_millis(or_long(250, 500))
}

/// What the processes of this version admitted of the hot key is charged under this version's
/// name of it, and nothing else: a single charge by another version would be one too many.
async fn assert_charged(server: &RedisServer, version: &str, ledger: &[Entry]) {
    let is_hot = |entry: &&Entry| entry.key == HOT;
    let hot: Vec<_> = ledger.iter().filter(is_hot).cloned().collect();
    let store = rig::builder().timeout(DEADLINE).prefix(version);
    let store = store.connect(&server.url()).expect("a store");
    let limiter = rig::limiter(store, TokenBucket::without_refill(HIGHEST));
    let charges = rig::charges(&limiter, &hot, |_| HIGHEST).await;
    checker::own_replies(&hot, HIGHEST, HIGHEST).expect("I4");
    checker::charged(&hot, &charges, 1).expect("I5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_processes_fail_no_request() {
    let mut row = Row::start("rolling deploy");
    let server = RedisServer::start();
    let start = |process| App::start(process, &server.url(), 0, HIGHEST);
    let mut apps: Vec<App> = (0..PROCESSES).map(start).collect();
    let rounds = or_long(1, 20);
    let mut ledger = Vec::new();
    for round in 1..=rounds {
        for place in 0..PROCESSES {
            tokio::time::sleep(work()).await;
            let new = start(round * PROCESSES + place);
            let old = std::mem::replace(&mut apps[usize::from(place)], new);
            ledger.extend(old.stop());
        }
    }
    for app in apps {
        ledger.extend(app.stop());
    }

    checker::nothing_broke(&ledger).expect("I7");
    assert_charged(&server, "tt", &ledger).await;
    let denied = |outcome| outcome == Outcome::Denied(By::Store);
    row.figure("denied", rig::count(&ledger, denied));
    row.answered(&ledger);
    row.decided_by_store(&ledger, 0.0);
    row.tell(u64::from(rounds) * u64::from(PROCESSES));
}

/// Half of the processes have keys of another form. Both run side by side, each with its own
/// counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_share_no_key() {
    let mut row = Row::start("rolling deploy versions");
    let server = RedisServer::start();
    let start = |version, process| App::of_version(version, process, &server.url(), 0, HIGHEST);
    let rounds = or_long(1, 10);
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let first = round * 4;
        let old_apps = [start("tt", first), start("tt", first + 1)];
        tokio::time::sleep(work()).await;
        let new_apps = [start("next", first + 2), start("next", first + 3)];
        tokio::time::sleep(work()).await;
        for version in ["tt", "next"] {
            wait::until("requests", || {
                server.keys().iter().any(|key| key.starts_with(version))
            });
        }
        old.extend(old_apps.into_iter().flat_map(App::stop));
        new.extend(new_apps.into_iter().flat_map(App::stop));
    }
    for (version, ledger) in [("tt", &old), ("next", &new)] {
        assert_charged(&server, version, ledger).await;
    }
    row.decided_by_store(&[old, new].concat(), 0.0);
    row.figure("charged under the other's name", 0);
    row.tell(u64::from(rounds));
}
