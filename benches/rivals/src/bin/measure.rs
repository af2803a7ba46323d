//! What one caller costs Redis under each algorithm: bytes, and commands for each check.
//! `scripts/measure` runs it, on a server without other clients.

use std::{collections::BTreeMap, env, mem, time::Duration};

use fred::{
    clients::Client,
    interfaces::ClientLike,
    types::{Builder, ClusterHash, CustomCommand, config::Config},
};
use tokio::{task::JoinSet, time::sleep};
use tower_throttle::{
    Concurrency, FixedWindow, LeakyBucket, Limiter, Permit, Policy, RedisStore, SlidingLog,
    SlidingWindow, TokenBucket,
};

const CALLERS: u64 = 100_000;
const MANY_CALLERS: u64 = 1_000_000;
const LIMIT: u64 = 100;
/// Requests in flight while callers come.
const WORKERS: u64 = 256;
/// One after another, so that no two share a call.
const CHECKS: u64 = 1_000;

/// A row of the table.
struct Row {
    algorithm: &'static str,
    policies: Vec<Policy>,
    callers: u64,
    /// How many requests of one unit each caller makes.
    requests: u64,
    /// Whether permits are held instead.
    held: bool,
}

impl Row {
    fn new(algorithm: &'static str, policy: impl Into<Policy>) -> Self {
        Self {
            algorithm,
            policies: vec![policy.into()],
            callers: CALLERS,
            requests: 1,
            held: false,
        }
    }

    fn of_many_callers(self) -> Self {
        Self {
            callers: MANY_CALLERS,
            ..self
        }
    }

    fn limiter(&self, store: &RedisStore) -> Limiter {
        let builder = Limiter::builder().store(store.clone());
        let policies = self.policies.iter().cloned();
        let builder = policies.fold(builder, |builder, policy| builder.policy(policy));
        builder.build().expect("a limiter")
    }
}

fn rows() -> Vec<Row> {
    // Long enough for nothing to come back during the run, because a bucket that is full again
    // is forgotten.
    let day = Duration::from_secs(86_400);
    let api = |quota: tower_throttle::Quota| Policy::new("api", quota);
    macro_rules! api {
        ($quota:expr) => {
            api($quota.try_into().expect("a quota"))
        };
    }
    let bucket = TokenBucket::new(LIMIT, day);
    let window = FixedWindow::new(LIMIT, day);
    let log = SlidingLog::new(LIMIT, day);
    let four = vec![
        Policy::new("bucket", bucket),
        Policy::new("window", window),
        Policy::new("sliding", SlidingWindow::new(LIMIT, day)),
        Policy::new("log", log),
    ];
    vec![
        Row::new("TokenBucket", api!(bucket)),
        Row::new("TokenBucket, `initial`", api!(bucket.initial(LIMIT / 2))),
        Row::new("TokenBucket, at once", api!(bucket.refill_at_once())),
        Row::new(
            "TokenBucket, by hand",
            api!(TokenBucket::without_refill(LIMIT)),
        ),
        Row::new("LeakyBucket", api!(LeakyBucket::new(LIMIT, day))),
        Row::new(
            "LeakyBucket, queue",
            api!(LeakyBucket::new(LIMIT, day).queue(LIMIT - 1)),
        ),
        Row::new("FixedWindow", api!(window)),
        Row::new("FixedWindow, aligned", api!(window.aligned())),
        Row::new(
            "FixedWindow, month",
            api!(FixedWindow::per_calendar_month(LIMIT)),
        ),
        Row::new("SlidingWindow", api!(SlidingWindow::new(LIMIT, day))),
        Row::new("SlidingLog", api!(log)),
        Row {
            callers: CALLERS / 10,
            requests: LIMIT,
            ..Row::new("SlidingLog, 100 entries", api!(log))
        },
        Row {
            held: true,
            ..Row::new("Concurrency", api!(Concurrency::new(LIMIT).lifetime(day)))
        },
        Row {
            policies: four,
            ..Row::new("four policies", bucket)
        },
        Row::new("TokenBucket", api!(bucket)).of_many_callers(),
        Row::new("FixedWindow", api!(window)).of_many_callers(),
    ]
}

#[tokio::main]
async fn main() {
    let url = env::args().nth(1).expect("the URL of a server to empty");
    let store = RedisStore::builder()
        .timeout(Duration::from_secs(20))
        .connect(&url)
        .expect("a store");
    let config = Config::from_url(&url).expect("a URL");
    let client = Builder::from_config(config).build().expect("a client");
    client.init().await.expect("a connection");
    let redis = Redis(client);

    println!(
        "| algorithm | callers | bytes per caller | an allowed check | in its script | µs \
         | a denied check | in its script | µs |\n\
         |---|--:|--:|---|---|--:|---|---|--:|"
    );
    let wanted = env::args().nth(2).unwrap_or_default();
    for row in rows() {
        if !format!("{} {}", row.algorithm, row.callers).contains(&wanted) {
            continue;
        }
        let bytes = bytes_per_caller(&row, &store, &redis).await;
        let limiter = row.limiter(&store);
        let [allowed, denied] = commands(&row, &limiter, &redis).await;
        println!(
            "| {} | {} | {bytes:.1} | {allowed} | {denied} |",
            row.algorithm, row.callers
        );
    }
}

async fn bytes_per_caller(row: &Row, store: &RedisStore, redis: &Redis) -> f64 {
    let limiter = row.limiter(store);
    // Buffers and scripts exist before the measurement.
    come(row, &limiter, CALLERS..CALLERS + 10_000).await;
    let before = redis.settled_memory(true).await;
    come(row, &limiter, 0..row.callers).await;
    let after = redis.settled_memory(false).await;
    let keys: u64 = redis.ask("DBSIZE", &[]).await.parse().expect("a number");
    assert_eq!(
        keys,
        row.callers * row.policies.len() as u64,
        "none has gone"
    );
    (after - before) as f64 / row.callers as f64
}

/// Lets each of these callers make its requests, which are all allowed.
async fn come(row: &Row, limiter: &Limiter, callers: std::ops::Range<u64>) {
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (limiter, requests, held) = (limiter.clone(), row.requests, row.held);
        let callers = (callers.start + worker..callers.end).step_by(WORKERS as usize);
        workers.spawn(async move {
            for caller in callers {
                if held {
                    // Never released, so the permit counts as held for the whole run.
                    mem::forget(hold(&limiter, caller).await);
                } else {
                    for _ in 0..requests {
                        assert!(is_admitted(&limiter, caller).await);
                    }
                }
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker.expect("a worker");
    }
}

async fn is_admitted(limiter: &Limiter, caller: u64) -> bool {
    let decision = limiter.check(caller).await;
    decision.expect("a decision").is_allowed()
}

async fn hold(limiter: &Limiter, caller: u64) -> Permit {
    let permit = limiter.acquire(caller, Duration::ZERO).await;
    permit.expect("a decision")
}

/// Returns the commands of admitted checks, and of denied ones.
async fn commands(row: &Row, limiter: &Limiter, redis: &Redis) -> [Commands; 2] {
    redis.ask("FLUSHALL", &["SYNC"]).await;
    let full = u64::MAX;
    let mut held = Vec::new();
    if row.held {
        for _ in 0..LIMIT {
            held.push(hold(limiter, full).await);
        }
    } else {
        for _ in 0..LIMIT {
            assert!(is_admitted(limiter, full).await);
        }
    }
    let mut of = [Commands::default(), Commands::default()];
    for (commands, wanted) in of.iter_mut().zip([true, false]) {
        redis.ask("CONFIG", &["RESETSTAT"]).await;
        for caller in 0..CHECKS {
            let caller = if wanted { caller } else { full };
            let is_allowed = if row.held {
                let permit = hold(limiter, caller).await;
                let is_allowed = permit.is_allowed();
                mem::forget(permit);
                is_allowed
            } else {
                is_admitted(limiter, caller).await
            };
            assert_eq!(is_allowed, wanted);
        }
        *commands = redis.commands().await;
    }
    mem::forget(held);
    of
}

/// How often each command was called for one check.
#[derive(Default)]
struct Commands {
    calls: BTreeMap<String, f64>,
    script_us: f64,
}

impl std::fmt::Display for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |is_sent: bool| {
            let calls = self.calls.iter();
            let calls = calls.filter(|(name, _)| name.starts_with("eval") == is_sent);
            let words = calls.map(|(name, calls)| format!("{calls} {name}"));
            words.collect::<Vec<_>>().join(", ")
        };
        write!(
            f,
            "{} | {} | {:.0}",
            list(true),
            list(false),
            self.script_us
        )
    }
}

struct Redis(Client);

impl Redis {
    async fn ask(&self, command: &'static str, words: &[&str]) -> String {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        let reply: Option<String> = self.0.custom(command, words).await.expect("a reply");
        reply.unwrap_or_default()
    }

    /// Returns the memory in use once it no longer changes, because Redis rehashes its tables
    /// step by step.
    async fn settled_memory(&self, empty: bool) -> i64 {
        if empty {
            self.ask("FLUSHALL", &["SYNC"]).await;
        }
        let mut before = i64::MIN;
        loop {
            sleep(Duration::from_millis(1_500)).await;
            let memory = self.ask("INFO", &["memory"]).await;
            let used = memory
                .lines()
                .find_map(|line| line.strip_prefix("used_memory:"));
            let used: i64 = used.and_then(|used| used.parse().ok()).expect("a number");
            if (used - before).abs() < 4_096 {
                return used;
            }
            before = used;
        }
    }

    async fn commands(&self) -> Commands {
        let mut commands = Commands::default();
        let stats = self.ask("INFO", &["commandstats"]).await;
        // cmdstat_get:calls=1000,usec=512,usec_per_call=0.51,...
        for line in stats.lines() {
            let Some((name, numbers)) = line
                .strip_prefix("cmdstat_")
                .and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            if name.starts_with("config") || name.starts_with("info") {
                continue;
            }
            let number = |wanted: &str| {
                let mut numbers = numbers.split(',').filter_map(|pair| pair.split_once('='));
                let found = numbers.find(|(name, _)| *name == wanted);
                found.and_then(|(_, number)| number.parse::<f64>().ok())
            };
            let calls = number("calls").expect("a number");
            if name == "evalsha" {
                commands.script_us = number("usec_per_call").expect("a number");
            }
            commands
                .calls
                .insert(name.to_owned(), calls / CHECKS as f64);
        }
        commands
    }
}
