//! A primary, two replicas, and three sentinels that monitor them.

use crate::prelude::*;
use crate::{
    proxy::Mode,
    support::{sentinel::Sentinel, try_command},
};

/// A live primary serves for at most this long after another was elected, until it becomes a
/// replica. Its clients stay, and what they write there is lost.
pub(crate) const FOLLOWS: Duration = Duration::from_secs(12);
/// A replica does not wait for others.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// Returns one of three sentinels.
fn start(primary: u16) -> Sentinel {
    let sentinel = Sentinel::start(primary, 2);
    let name = Sentinel::NAME;
    sentinel.command(&["SET", name, "down-after-milliseconds", "1000"]);
    sentinel.command(&["SET", name, "failover-timeout", "4000"]);
    sentinel
}

/// Returns a field of what a sentinel knows about the primary.
fn known(sentinel: &Sentinel, field: &str) -> Option<String> {
    let reply = sentinel.command(&["MASTER", Sentinel::NAME]);
    let mut lines = reply.lines();
    lines.find(|line| *line == field)?;
    lines.next().map(str::to_owned)
}

fn primary(sentinel: &Sentinel) -> Option<u16> {
    let reply = sentinel.command(&["GET-MASTER-ADDR-BY-NAME", Sentinel::NAME]);
    reply.lines().nth(1)?.parse().ok()
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
            sentinels: (0..3).map(|_| start(known)).collect(),
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
        let sentinels = self.sentinels.iter();
        let epochs = sentinels.filter_map(|sentinel| known(sentinel, "config-epoch"));
        let epochs = epochs.filter_map(|epoch| epoch.parse().ok());
        epochs.max().expect("an epoch")
    }

    pub(crate) fn url(&self) -> String {
        let sentinels = self.sentinels.iter();
        let hosts = sentinels.map(|sentinel| format!("127.0.0.1:{}", sentinel.port));
        let (hosts, name) = (hosts.collect::<Vec<_>>().join(","), Sentinel::NAME);
        format!("redis-sentinel://{hosts}/?sentinelServiceName={name}")
    }

    /// Waits until every sentinel knows the others, and both replicas follow.
    pub(crate) fn wait_until_whole(&self) {
        let is = |sentinel: &Sentinel, field: &str, wanted: &str| {
            known(sentinel, field).is_some_and(|known| known == wanted)
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
        let mut named = self.sentinels.iter().map(primary);
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
        self.sentinels[0].command(&["FAILOVER", Sentinel::NAME]);
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
        let (epoch, from_us) = (self.epoch, self.since_us);
        self.excuse(watched, recorder);
        if self.epoch != epoch {
            let to_us = self.since_us;
            self.found.push(Window { from_us, to_us });
        }
    }

    /// Ignores a failover since the last call, because it was requested.
    pub(crate) fn excuse(&mut self, watched: &Watched, recorder: &Recorder) {
        (self.epoch, self.since_us) = (watched.epoch(), recorder.now_us());
    }
}
