//! What the integration tests share: servers, requests, random numbers, polling.

#![allow(dead_code, reason = "each binary uses a part")]
#![allow(unreachable_pub, reason = "of a module that each binary includes")]

pub mod cluster;
pub mod denial_counts;
pub mod fake;
pub mod limiters;
pub mod log;
pub mod oracle;
pub mod overlaid;
pub mod plans;
pub mod pool;
pub mod port;
pub mod prelude;
pub mod random;
pub mod rate;
pub mod refusals;
pub mod sentinel;
pub mod signals;
pub mod stores;
pub mod trace;
pub mod web;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use port::Port;
use tower_throttle::{
    Clock, ConfigError, Decision, Limiter, LimiterBuilder, OnStoreFailure, Policy,
    metrics::{Checks, Snapshot},
    store::Store,
};

/// Long enough for the slowest machine. No test waits for it to pass.
pub const DEADLINE: Duration = Duration::from_secs(45);
/// Between two looks at a condition, so that what it waits for gets the processor.
const PAUSE: Duration = Duration::from_millis(1);

/// Polls a condition until it holds, for at most [`DEADLINE`].
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < DEADLINE, "it never came: {what}");
        thread::sleep(PAUSE);
    }
}

/// The same without blocking the runtime, and without moving its time if that is paused.
pub async fn eventually_async<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < DEADLINE, "it never came: {what}");
        let pause = tokio::task::spawn_blocking(|| thread::sleep(PAUSE));
        pause.await.expect("no panic");
    }
}

/// Checks for this long at a store without a connection, and counts the checks that waited for
/// one until their timeout.
pub async fn count_waits(limiter: &Limiter, timeout: Duration, for_long: Duration) -> usize {
    let (started, mut waits) = (tokio::time::Instant::now(), 0);
    while started.elapsed() < for_long {
        let sent = tokio::time::Instant::now();
        let error = limiter.check("ann").await.expect_err("no connection");
        assert!(error.is_unavailable(), "{error:?}");
        if sent.elapsed() >= timeout {
            waits += 1;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    waits
}

/// Returns a limiter that lets no fallback decide in the store's place.
pub fn denying_limiter(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let builder = Limiter::builder().store(store);
    let builder = builder.on_store_failure(OnStoreFailure::Deny);
    let builder = policies.into_iter().fold(builder, LimiterBuilder::policy);
    builder.build().expect("a limiter")
}

/// Returns what each policy of a decision has left.
pub fn left_of(decision: &Decision) -> Vec<u64> {
    let policies = decision.policies();
    policies.map(|policy| policy.remaining()).collect()
}

/// Returns how many of these checks are admitted.
pub async fn count_admitted(limiter: &Limiter, key: &str, checks: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..checks {
        let decision = limiter.check(key).await.expect("a decision");
        admitted += usize::from(decision.is_allowed());
    }
    admitted
}

/// Returns what a limiter counted of a policy.
pub fn checks_of(limiter: &Limiter, policy: &str) -> Checks {
    *limiter.metrics().policy(policy).expect("its numbers")
}

/// Returns how many bans the policy `bans` has started.
pub fn bans_started(limiter: &Limiter) -> u64 {
    let seen = limiter.metrics();
    let bans = seen.bans().find(|(policy, _)| *policy == "bans");
    bans.expect("the penalty").1
}

/// Returns the shadow policies that would have denied.
pub fn denied_in_shadow(decision: &Decision) -> Vec<&str> {
    let denied = decision.shadow_denied();
    denied.map(|policy| policy.name()).collect()
}

/// Waits until so many shadow policies have answered.
pub async fn known(decision: &Decision, shadows: usize) {
    let are_known = || async { decision.shadow_policies().count() == shadows };
    eventually_async("the shadow policies' answers", are_known).await;
}

/// The machine's clock.
#[derive(Debug)]
pub struct WallClock;

impl Clock for WallClock {
    fn now_us(&self) -> u64 {
        us_since_epoch(SystemTime::now())
    }
}

/// When the store decided.
#[track_caller]
pub fn decided_at_us(decision: &Decision) -> u64 {
    us_since_epoch(decision.decided_at().expect("a decision of a store"))
}

pub fn us_since_epoch(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(since.as_micros()).expect("a time before the year 586,512")
}

/// Panics unless it is the configuration error of this code, with a message that starts with
/// this text.
#[track_caller]
pub fn assert_config_error<T>(result: Result<T, ConfigError>, code: &str, start: &str) {
    let error = result.err().expect("a configuration error");
    let is_so = error.code() == code && error.to_string().starts_with(start);
    assert!(is_so, "{code}, {start:?}, and not {error:?}");
}

/// A Redis server on a free port of the loopback, in a temporary folder. It stops when dropped.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<Child>,
    port: Port,
    folder: PathBuf,
    options: Vec<String>,
}

impl RedisServer {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with options, as `redis-server` takes them on its command line.
    pub fn with(options: &[&str]) -> Self {
        let mut server = Self::stopped(options);
        server.run();
        server
    }

    /// Reserves a port and a folder, without starting the server.
    pub fn stopped(options: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("tower-throttle-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self {
            child: None,
            port: Port::claim(),
            folder,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }

    /// Starts the server, empty, on the same port as before.
    pub fn run(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&self.folder)
            .args(&self.options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => panic!(
                "these tests need `redis-server` on the PATH, and it could not be started \
                 ({error}): install the package `redis-server` or `valkey`, or run \
                 `scripts/test`, which does"
            ),
        };
        let child = self.child.insert(child);
        let port = self.port.number();
        eventually("an answer to PING", || {
            let ended = child.try_wait().expect("the state of a child");
            assert_eq!(ended, None, "redis-server with {:?}", self.options);
            match try_command(port, &["PING"]) {
                Ok(_) => true,
                Err(error) => error.starts_with("NOAUTH"),
            }
        });
    }

    /// Kills the server, so that its connections break.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn process_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// Runs one command on a connection of its own, as `redis-cli` would. Panics on an error.
    #[track_caller]
    pub fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> String {
        self.try_command(words).unwrap_or_else(|error| {
            let words = words
                .iter()
                .map(|word| String::from_utf8_lossy(word.as_ref()));
            panic!("{:?}: {error}", words.collect::<Vec<_>>())
        })
    }

    /// Runs one command as [`try_command`] does.
    pub fn try_command<W: AsRef<[u8]>>(&self, words: &[W]) -> Result<String, String> {
        try_command(self.port(), words)
    }

    /// Returns a number that `INFO` has under this name.
    #[track_caller]
    pub fn info(&self, name: &str) -> u64 {
        let (info, start) = (self.command(&["INFO"]), format!("{name}:"));
        let number = info.lines().find_map(|line| line.strip_prefix(&start));
        let number = number.and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("{name} in {info}"))
    }

    /// Returns how often a command ran, by its name in `INFO commandstats`.
    pub fn ran(&self, command: &str) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]);
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        let number = line.and_then(|line| line.split(',').next());
        number.map_or(0, |number| number.parse().expect("a number"))
    }

    /// Returns the process id of the running server.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Returns all keys.
    pub fn keys(&self) -> Vec<String> {
        let keys = self.command(&["KEYS", "*"]);
        keys.lines().map(str::to_owned).collect()
    }

    /// Asserts that every key has an expiry.
    #[track_caller]
    pub fn assert_all_keys_expire(&self) {
        for key in self.keys() {
            assert_ne!(self.command(&["PTTL", &key]), "-1", "{key} never expires");
        }
    }

    /// Returns an option as `--name value` if this `redis-server` knows it. Otherwise it would
    /// not start.
    pub fn if_known(option: &str) -> Vec<&str> {
        let words: Vec<_> = option.split(' ').collect();
        let name = words[0].trim_start_matches('-');
        let is_known = !Self::start().command(&["CONFIG", "GET", name]).is_empty();
        if is_known { words } else { Vec::new() }
    }

    /// Returns whether `min-replicas-to-write` applies to scripts. In Redis 6.0, and early 6.2,
    /// it does not.
    pub fn holds_scripts_to_min_replicas() -> bool {
        let server = Self::with(&["--min-replicas-to-write", "1"]);
        let write = "return redis.call('SET', KEYS[1], 1)";
        server.try_command(&["EVAL", write, "1", "a"]).is_err()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sends one command to a port. Elements of an array are separated by newlines; nil is empty.
pub fn try_command<W: AsRef<[u8]>>(port: u16, words: &[W]) -> Result<String, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let talk = || -> std::io::Result<Result<String, String>> {
        let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            request.extend(format!("${}\r\n", word.len()).bytes());
            request.extend([word, b"\r\n"].concat());
        }
        stream.write_all(&request)?;
        read_reply(&mut BufReader::new(stream))
    };
    talk().unwrap_or_else(|error| Err(error.to_string()))
}

/// Reads a reply as [`try_command`] returns it.
pub fn read_reply(reader: &mut impl BufRead) -> std::io::Result<Result<String, String>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(kind) = line.chars().next() else {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    };
    let rest = line[1..].trim_end().to_owned();
    Ok(match kind {
        '-' => Err(rest),
        '$' if rest != "-1" => {
            let mut bytes = vec![0; rest.parse::<usize>().expect("a length") + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        '$' => Ok(String::new()),
        '*' => {
            let mut parts = Vec::new();
            for _ in 0..rest.parse::<i64>().expect("a length").max(0) {
                match read_reply(reader)? {
                    Ok(part) => parts.push(part),
                    Err(error) => return Ok(Err(error)),
                }
            }
            Ok(parts.join("\n"))
        }
        _ => Ok(rest),
    })
}

/// Asserts that one line was logged, with these parts, which `|` separates.
#[track_caller]
pub(crate) fn assert_one_line(log: &[String], parts: &str) {
    assert_eq!(log.len(), 1, "{log:?}");
    for part in parts.split('|') {
        assert!(log[0].contains(part), "{part} in {log:?}");
    }
}

/// Returns all counts of a layer or limiter that are not 0, by what they count.
pub fn counted(seen: &Snapshot) -> BTreeMap<String, u64> {
    let requests = seen.requests.by_result();
    let requests = requests.map(|(result, count)| (result.to_owned(), count));
    let decisions = seen.decisions.by_source();
    let decisions = decisions.map(|(source, count)| (format!("by {source}"), count));
    let checks = seen.policies().flat_map(|(policy, checks)| {
        let checks = checks.by_result();
        checks.map(move |(result, count)| (format!("{policy}: {result}"), count))
    });
    let all = requests.chain(decisions).chain(checks);
    all.filter(|(_, count)| *count > 0).collect()
}
