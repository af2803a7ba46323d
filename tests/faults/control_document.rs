//! The control document loses no acknowledged change, and brings none back that was removed:
//! whatever Redis loses, while the processes that made the changes live.

use std::{
    collections::BTreeSet,
    time::{SystemTime, UNIX_EPOCH},
};

use tower_throttle::control::{Control, Mode};

use crate::prelude::*;

const KEY: &str = "ttC{control}";

fn process(url: &str) -> Control {
    store_at(url).control()
}

fn names(control: &Control) -> BTreeSet<String> {
    let entries = control.entries().into_iter();
    let name = |entry: tower_throttle::control::Entry| match entry.action {
        tower_throttle::control::Action::Mode { policy, .. } => policy,
        other => panic!("{other:?}"),
    };
    entries.map(name).collect()
}

/// Waits until all processes have these entries, of one version and without a problem.
fn agree(controls: &[&Control], expected: &[&str]) {
    let expected: BTreeSet<_> = expected.iter().map(|name| (*name).to_owned()).collect();
    wait::until("processes that agree", || {
        let version = controls[0].status().version;
        controls.iter().all(|control| {
            let status = control.status();
            (status.version, status.problem) == (version, None) && names(control) == expected
        })
    });
}

/// Makes a change once the connection is there: it is not there at once after a move.
async fn off(control: &Control, policy: &str) {
    let made = async || control.set_mode(policy, Mode::Off).await.is_ok();
    wait::until_async("a change", made).await;
}

async fn on(control: &Control, policy: &str) {
    let is_removed = control.clear_mode(policy).await.expect("it is made");
    assert!(is_removed, "{policy}");
}

/// A primary and its replica, and two processes, each behind a proxy of its own. Both know the
/// same entries, and so does the replica, which has become a second primary.
struct Pair {
    servers: [RedisServer; 2],
    proxies: [Proxy; 2],
    processes: [Control; 2],
}

impl Pair {
    async fn start(entries: &[&str]) -> Self {
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let servers = [(); 2].map(|()| RedisServer::with(&at_once));
        let proxies = [(); 2].map(|()| Proxy::before(servers[0].port()));
        let processes = [0, 1].map(|one: usize| process(&proxies[one].url()));
        for entry in entries {
            off(&processes[0], entry).await;
        }
        agree(&processes.each_ref(), entries);
        servers[1].command(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
        wait::until("the replica", || {
            servers[1].command(&["GET", KEY]) == servers[0].command(&["GET", KEY])
        });
        servers[1].command(&["REPLICAOF", "NO", "ONE"]);
        Self {
            servers,
            proxies,
            processes,
        }
    }

    /// Leads a process to a server, and waits until it looks at it.
    async fn lead(&self, process: usize, server: usize) {
        self.proxies[process].lead_to(self.servers[server].port());
        let looks = async || self.processes[process].refresh().await.is_ok();
        wait::until_async("a look", looks).await;
    }
}

/// Both have taken changes, of different subjects and of the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_primaries_that_become_one_lose_no_change_of_the_control_document() {
    for survivor in [0, 1] {
        let pair = Pair::start(&["lifted by one", "lifted by two", "lifted last"]).await;
        let [one, two] = &pair.processes;
        pair.lead(1, 1).await;

        on(one, "lifted by one").await;
        off(one, "made by one").await;
        on(two, "lifted by two").await;
        off(two, "made by two").await;
        off(one, "lifted last").await;
        on(two, "lifted last").await;

        let follower = 1 - survivor;
        let port = pair.servers[survivor].port().to_string();
        pair.servers[follower].command(&["REPLICAOF", "127.0.0.1", &port]);
        pair.lead(follower, survivor).await;
        let new = process(&pair.servers[survivor].url());
        agree(&[one, two, &new], &["made by one", "made by two"]);
        // It stays so.
        for control in [one, two, &new] {
            control.refresh().await.expect("nothing is wrong");
        }
        agree(&[one, two, &new], &["made by one", "made by two"]);
    }
}

/// Each loss comes after so many acknowledged changes, wherever the writers are in their next ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_lose_no_change_while_redis_loses_its_data_again_and_again() {
    const CHANGES_FOR_EACH_LOSS: usize = 20;
    let server = Arc::new(RedisServer::start());
    let controls = [0, 1, 2].map(|_| process(&server.url()));
    let (made, each) = (Arc::new(AtomicUsize::new(0)), or_long(100, 1_000));
    let mut writers = JoinSet::new();
    for (writer, control) in controls.iter().take(2).cloned().enumerate() {
        let (made, server) = (Arc::clone(&made), Arc::clone(&server));
        writers.spawn(async move {
            let mut expected = Vec::<String>::new();
            for number in 0..each {
                if number % 4 == 3 {
                    on(&control, &expected.pop().expect("an entry")).await;
                } else {
                    let policy = format!("{writer}-{number}");
                    let change = control.set_mode(&policy, Mode::Off);
                    change.await.expect("it is made");
                    expected.push(policy);
                }
                if made.fetch_add(1, Ordering::Relaxed) % CHANGES_FOR_EACH_LOSS == 0 {
                    server.command(&["FLUSHALL"]);
                }
            }
            expected
        });
    }
    let expected: Vec<_> = writers.join_all().await.concat();
    assert_eq!(made.load(Ordering::Relaxed), 2 * each);
    assert_eq!(expected.len(), each);
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    agree(&controls.each_ref(), &expected);
}

/// Entries begin and end by the clock of Redis, whatever the processes believe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_clocks_ten_minutes_apart_agree_about_bans() {
    const MINUTE: Duration = Duration::from_secs(60);
    let server = RedisServer::start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("now");
    let fleet = [now - 10 * MINUTE, now, now + 10 * MINUTE].map(|now| {
        let now_us = u64::try_from(now.as_micros()).expect("this century");
        let clock = Arc::new(ManualClock::at_us(now_us));
        let store = patient().clock(clock);
        let store = store.connect(&server.url()).expect("a store");
        let control = store.control();
        let limiter = Limiter::builder()
            .store(store)
            .policy(Policy::new("plan", FixedWindow::per_day(1_000)))
            .control(control.clone());
        (control, limiter.build().expect("a limiter"))
    });
    let is_banned = async |limiter: &Limiter, caller: &str| {
        let decision = limiter.check(caller).await.expect("Redis");
        !decision.is_allowed()
    };
    for (number, (control, _)) in fleet.iter().enumerate() {
        let ban = control.ban("plan", number.to_string(), 5 * MINUTE);
        ban.await.expect("it is made");
    }
    wait::until("all bans", || {
        fleet
            .iter()
            .all(|(control, _)| control.status().entries == 3)
    });
    for (control, limiter) in &fleet {
        for caller in ["0", "1", "2"] {
            assert!(is_banned(limiter, caller).await, "{caller}");
        }
        assert_eq!(control.entries(), fleet[0].0.entries());
    }
    // The same for what is taken back.
    for (number, (control, _)) in fleet.iter().rev().enumerate() {
        assert!(
            control
                .unban("plan", number.to_string())
                .await
                .expect("it is made")
        );
    }
    wait::until("no ban", || {
        fleet
            .iter()
            .all(|(control, _)| control.status().entries == 0)
    });
    for (_, limiter) in &fleet {
        assert!(!is_banned(limiter, "0").await);
    }
}
