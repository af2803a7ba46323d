//! A primary, two replicas, and three sentinels that monitor them.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::prelude::*;
use crate::{
    proxy::Mode,
    support::{port::Port, try_command},
};

const NAME: &str = "limits";
/// A live primary serves for at most this long after another was elected, until it becomes a
/// replica. Its clients stay, and what they write there is lost.
pub(crate) const FOLLOWS: Duration = Duration::from_secs(12);
const LOG: &str = "sentinel.log";
/// A replica does not wait for others.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

#[derive(Debug)]
struct Sentinel {
    child: Child,
    port: Port,
    folder: PathBuf,
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        let port = Port::claim();
        let name = format!("tower-throttle-sentinel-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let file = folder.join("sentinel.conf");
        // The sentinel writes there what it learns.
        std::fs::write(&file, "").expect("a file");
        let child = Command::new("redis-server")
            .arg(&file)
            .args(["--sentinel", "--bind", "127.0.0.1"])
            .args(["--port", &port.to_string()])
            .arg("--dir")
            .arg(&folder)
            .args(["--logfile", LOG])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server");
        let sentinel = Self {
            child,
            port,
            folder,
        };
        wait::until("an answer of a sentinel", || {
            try_command(sentinel.port.number(), &["PING"]).is_ok()
        });
        sentinel.command(&["MONITOR", NAME, "127.0.0.1", &primary.to_string(), "2"]);
        sentinel.command(&["SET", NAME, "down-after-milliseconds", "1000"]);
        sentinel.command(&["SET", NAME, "failover-timeout", "4000"]);
        sentinel
    }

    fn command(&self, words: &[&str]) -> String {
        let words = [&["SENTINEL"], words].concat();
        match try_command(self.port.number(), &words) {
            Ok(reply) => reply,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Returns a field of what it knows about the primary.
    fn known(&self, field: &str) -> Option<String> {
        let reply = self.command(&["MASTER", NAME]);
        let mut lines = reply.lines();
        lines.find(|line| *line == field)?;
        lines.next().map(str::to_owned)
    }

    /// Returns the last lines of its log.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn primary(&self) -> Option<u16> {
        let reply = self.command(&["GET-MASTER-ADDR-BY-NAME", NAME]);
        reply.lines().nth(1)?.parse().ok()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "the sentinel on port {}:\n{}",
                self.port.number(),
                self.last_words()
            );
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[derive(Debug)]
pub(crate) struct Watched {
    sentinels: Vec<Sentinel>,
    pub(crate) servers: Vec<RedisServer>,
    /// The proxy between the first primary and all others.
    between: Option<Proxy>,
}

impl Watched {
    pub(crate) fn start() -> Self {
        let primary = RedisServer::with(&AT_ONCE);
        let port = primary.port().to_string();
        let follows = ["--replicaof", "127.0.0.1", &port];
        let replica = || RedisServer::with(&[&follows[..], &AT_ONCE].concat());
        let servers = vec![replica(), replica(), primary];
        Self::over(servers, None)
    }

    /// The same with a proxy before the primary, whose port all know. It can be
    /// [cut](Self::cut). The primary accepts no writes once its replicas are silent for this
    /// many seconds.
    pub(crate) fn with_lag(max_lag_s: u64) -> Self {
        let lag = max_lag_s.to_string();
        let lag = [
            "--min-replicas-to-write",
            "1",
            "--min-replicas-max-lag",
            &lag,
        ];
        let mut primary = RedisServer::stopped(&[&lag[..], &AT_ONCE].concat());
        primary.run();
        let between = Proxy::before(primary.port());
        let port = between.port().to_string();
        primary.command(&["CONFIG", "SET", "replica-announce-port", &port]);
        let follows = ["--replicaof", "127.0.0.1", &port];
        let replica = || RedisServer::with(&[&follows[..], &AT_ONCE].concat());
        Self::over(vec![replica(), replica(), primary], Some(between))
    }

    fn over(servers: Vec<RedisServer>, between: Option<Proxy>) -> Self {
        let known = between.as_ref().map_or(servers[2].port(), Proxy::port);
        let watched = Self {
            sentinels: (0..3).map(|_| Sentinel::start(known)).collect(),
            servers,
            between,
        };
        watched.wait_until_whole();
        watched
    }

    /// Cuts the first primary off from all but those at its own port: sentinels, replicas, and
    /// clients that asked the sentinels for it.
    pub(crate) fn cut(&self) {
        let between = self.between.as_ref();
        between.expect("one that can be cut").set(Mode::BlackHole);
    }

    /// Returns the first primary, whichever server is the primary now.
    pub(crate) fn first(&self) -> &RedisServer {
        &self.servers[2]
    }

    /// Starts a primary that was killed again, as a replica of none yet.
    pub(crate) fn run_all(&mut self) {
        for server in &mut self.servers {
            if server.process_id().is_none() {
                server.run();
            }
        }
    }

    /// Freezes a sentinel until the result is dropped: it accepts connections, and does not
    /// answer.
    pub(crate) fn freeze_sentinel(&self, number: usize) -> Frozen {
        signals::freeze(self.sentinels[number].child.id())
    }

    /// Kills a sentinel.
    pub(crate) fn kill_sentinel(&mut self, number: usize) {
        let child = &mut self.sentinels[number].child;
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Returns the epoch, which grows with each failover, also with an unrequested one.
    pub(crate) fn epoch(&self) -> u64 {
        let epochs = self
            .sentinels
            .iter()
            .filter_map(|s| s.known("config-epoch"));
        let epochs = epochs.filter_map(|epoch| epoch.parse().ok());
        epochs.max().expect("an epoch")
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
            .collect();
        let hosts = hosts.join(",");
        format!("redis-sentinel://{hosts}/?sentinelServiceName={NAME}")
    }

    /// Waits until every sentinel knows the others, and both replicas follow.
    pub(crate) fn wait_until_whole(&self) {
        let is = |sentinel: &Sentinel, field: &str, wanted: &str| {
            sentinel.known(field).is_some_and(|known| known == wanted)
        };
        wait::until("sentinels that agree", || {
            let sentinels = &self.sentinels;
            sentinels.iter().all(|sentinel| {
                is(sentinel, "num-other-sentinels", "2")
                    && is(sentinel, "num-slaves", "2")
                    && is(sentinel, "flags", "master")
            })
        });
        wait::until("replicas that follow", || {
            let followers = self.servers.iter().filter(|server| {
                let info = server.try_command(&["INFO", "replication"]);
                info.is_ok_and(|info| info.contains("master_link_status:up"))
            });
            followers.count() == 2
        });
    }

    /// Returns the port of the primary, if all sentinels agree.
    pub(crate) fn agreed(&self) -> Option<u16> {
        let mut named = self.sentinels.iter().map(Sentinel::primary);
        let first = named.next()??;
        named.all(|port| port == Some(first)).then_some(first)
    }

    /// Returns the primary that the sentinels name.
    pub(crate) fn primary(&mut self) -> &mut RedisServer {
        let port = self.agreed().expect("sentinels that agree");
        let mut servers = self.servers.iter_mut();
        let primary = servers.find(|server| server.port() == port);
        primary.expect("one of these")
    }

    /// Starts a failover, without waiting for it.
    pub(crate) fn fail_over(&self) {
        self.sentinels[0].command(&["FAILOVER", NAME]);
    }

    /// Waits until all sentinels name another primary and it accepts writes. Returns how long
    /// that took.
    pub(crate) fn wait_for_another(&self, than: u16) -> Duration {
        wait::until("another primary", || {
            let another = self.agreed().filter(|port| *port != than);
            another.is_some_and(|port| {
                try_command(port, &["ROLE"]).is_ok_and(|role| role.starts_with("master"))
            })
        })
    }
}

/// Unrequested failovers: sentinels on a busy machine may think that the primary is down.
#[derive(Debug)]
pub(crate) struct Unasked {
    epoch: u64,
    since_us: u64,
    /// When state may have been lost by one.
    pub(crate) found: Vec<Window>,
}

impl Unasked {
    pub(crate) fn from_now_on(watched: &Watched, recorder: &Recorder) -> Self {
        Self {
            epoch: watched.epoch(),
            since_us: recorder.now_us(),
            found: Vec::new(),
        }
    }

    /// Records whether there was one since the last call.
    pub(crate) fn look(&mut self, watched: &Watched, recorder: &Recorder) {
        let (epoch, since_us) = (self.epoch, self.since_us);
        self.excuse(watched, recorder);
        if self.epoch != epoch {
            self.found.push(Window {
                from_us: since_us,
                to_us: self.since_us,
            });
        }
    }

    /// Ignores a failover since the last call, because it was requested.
    pub(crate) fn excuse(&mut self, watched: &Watched, recorder: &Recorder) {
        (self.epoch, self.since_us) = (watched.epoch(), recorder.now_us());
    }
}
