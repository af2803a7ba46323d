//! Buckets in Redis, decided by one script call.

mod call;
mod cluster;
mod connection;
mod dispatch;
mod key;
mod node;
mod script;
mod url;

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use fred::{clients::Client, error::Error as FredError, types::Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use self::{
    call::{Deadline, Manner},
    cluster::{Cluster, Connect, KeyedLeg},
    connection::Connections,
    key::KeyNames,
    node::{Asker, Node},
    script::{AskedLeg, Encoded},
    url::Target,
};
use super::{Answer, Check, Fallback, Leg, Operation, Store};
use crate::{Clock, ConfigError, Decision, telemetry};

/// Keeps buckets in Redis or Valkey, so that a fleet of processes shares them.
///
/// Each check is decided in one script call, whatever the number of policies:
/// atomic, by the server's clock, all charged or none. Checks that come while
/// others are under way go out together in the next call. Needs Redis 6 or
/// later, or Valkey.
///
/// ```no_run
/// use tower_throttle::{RateLimitLayer, RedisStore, TokenBucket};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = RedisStore::connect("redis://127.0.0.1/")?;
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10).burst(20)).store(redis);
/// # Ok(()) }
/// ```
///
/// **Connecting** happens in the background and never ends: the application
/// starts without Redis, and finds it when it comes. Checks wait for the first
/// attempt to connect, within their [deadline](RedisStoreBuilder::deadline);
/// after that, a check without a connection fails at once. What failing means
/// is the layer's [`OnStoreFailure`](crate::OnStoreFailure).
///
/// **Never charged twice.** A check is sent once. Only the answer "no such
/// script", which says that nothing ran, is followed by sending the script's text.
///
/// **State is small and leaves by itself**: one string for each policy and
/// caller, an integer for buckets and windows, under a key of fixed size
/// ([`Limiter::redis_keys`](crate::Limiter::redis_keys) prints it), which expires when it means the same as none. If Redis loses its
/// data, each caller gets at most one new burst.
///
/// Cloning is cheap and shares the connections. They close when the last clone
/// drops, and work in the Tokio runtime that the store was built in: when that
/// ends, the store has failed.
#[derive(Clone, Debug)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    servers: Servers,
    names: KeyNames,
    deadline: Duration,
    fallback: Fallback,
}

#[derive(Debug)]
enum Servers {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl RedisStore {
    /// Connects to one node with the default settings. Returns at once.
    ///
    /// `redis://user:password@host:port/database`; `rediss://` for TLS, with
    /// the feature `redis-rustls`. Call it inside a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The URL cannot be used, or there is no Tokio runtime. An absent server
    /// is not an error.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(url)
    }

    /// Uses a fred client of your own, with the default settings: for TLS by
    /// other means, a Unix socket, or credentials that change. See
    /// [`RedisStoreBuilder::client`].
    ///
    /// # Errors
    ///
    /// There is no Tokio runtime.
    pub fn from_client(client: Client) -> Result<Self, ConfigError> {
        Self::builder().client(client)
    }

    /// Starts a store with settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder {
            prefix: "tt".to_owned(),
            secret: None,
            deadline: Duration::from_millis(50),
            connections: 1,
            most_in_flight: 4_096,
            clock: None,
        }
    }
}

/// Builds a [`RedisStore`].
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    prefix: String,
    secret: Option<Vec<u8>>,
    deadline: Duration,
    connections: usize,
    most_in_flight: usize,
    clock: Option<Arc<dyn Clock>>,
}

impl RedisStoreBuilder {
    /// What all keys start with: printable ASCII without braces. Default: `tt`.
    ///
    /// Applications that share a Redis and should not share limits need
    /// different prefixes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Hashes callers' keys with this secret, so that who can read Redis
    /// cannot test guesses of addresses or API keys. Default: none.
    ///
    /// All processes need the same one. A new secret starts all buckets afresh.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// How long a check may take in all. Default: 50 ms.
    ///
    /// After that the store has failed for this check. It may still be charged.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How many connections to take turns on. Default: 1, which is enough for
    /// what one Redis thread decides.
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How many checks may wait for Redis at a time. Default: 4,096.
    ///
    /// One more fails at once: with [`StoreError::is_overloaded`](crate::StoreError::is_overloaded) while Redis
    /// answers, and a layer answers 503 then, whatever its
    /// [`OnStoreFailure`](crate::OnStoreFailure); with
    /// [`StoreError::is_unavailable`](crate::StoreError::is_unavailable) while Redis does not. The same goes for a
    /// check whose deadline passes before it is its turn.
    pub const fn max_in_flight(mut self, checks: usize) -> Self {
        self.most_in_flight = checks;
        self
    }

    /// Takes the time from `clock` and not from Redis: for tests, and for
    /// services that refuse `TIME` in scripts.
    ///
    /// **The danger**: the clocks of all processes must agree. One that runs
    /// ahead lets callers in early everywhere.
    pub fn clock(mut self, clock: Arc<impl Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Connects to one node or to a cluster. Returns at once. See
    /// [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// The URL or a setting cannot be used, or there is no Tokio runtime.
    pub fn connect(self, url: &str) -> Result<RedisStore, ConfigError> {
        let target = Target::of(url)?;
        self.build(|settings, runtime, asker| {
            let (count, queue) = (settings.connections, settings.most_in_flight);
            Ok(match target {
                Target::Node(config) => {
                    let say = |error: &FredError| telemetry::not_connected(error);
                    let connections = Connections::connect(&runtime, config, count, queue, say)?;
                    Servers::One(Node::new(runtime, connections, queue, asker))
                }
                Target::Cluster(config, seeds) => {
                    let connect = Connect {
                        runtime,
                        config,
                        connections: count,
                        most_in_flight: queue,
                        asker,
                    };
                    Servers::Cluster(Cluster::connect(connect, seeds, settings.deadline))
                }
            })
        })
    }

    /// Uses a fred client of your own, for one node. You connect it and keep it so.
    ///
    /// Give it a [`ReconnectPolicy`](fred::types::config::ReconnectPolicy)
    /// without an end: with none, the first lost connection is its last. Checks
    /// are sent with one attempt, at once or not at all, and with this store's
    /// deadline, whatever the client's own settings. A client for a cluster or
    /// behind Sentinel is not supported here.
    ///
    /// # Errors
    ///
    /// A setting cannot be used, or there is no Tokio runtime.
    pub fn client(self, client: Client) -> Result<RedisStore, ConfigError> {
        self.build(|settings, runtime, asker| {
            let connections = Connections::given(client);
            let node = Node::new(runtime, connections, settings.most_in_flight, asker);
            Ok(Servers::One(node))
        })
    }

    fn build(
        self,
        connect: impl FnOnce(&Self, Handle, Arc<Asker>) -> Result<Servers, ConfigError>,
    ) -> Result<RedisStore, ConfigError> {
        let settings = [
            ("deadline", self.deadline.is_zero()),
            ("connections", self.connections == 0),
            ("max_in_flight", self.most_in_flight == 0),
            ("secret", self.secret.as_ref().is_some_and(Vec::is_empty)),
        ];
        if let Some((setting, _)) = settings.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(ConfigError::Zero { setting });
        }
        let names = KeyNames::new(self.prefix.clone(), self.secret.as_deref())?;
        let runtime = Handle::try_current().map_err(|_| ConfigError::NoRuntime)?;
        let asker = Asker::new(first_nonce(), self.clock.clone());
        Ok(RedisStore(Arc::new(Inner {
            servers: connect(&self, runtime, asker)?,
            names,
            deadline: self.deadline,
            fallback: match self.clock {
                Some(clock) => Fallback::with_clock(Arc::new(clock)),
                None => Fallback::new(),
            },
        })))
    }
}

impl Store for RedisStore {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let operation = check.operation();
        let name = |leg: &Leg<'_>| self.0.names.name(leg);
        let node = match &self.0.servers {
            Servers::One(node) => Arc::clone(node),
            Servers::Cluster(cluster) => {
                let legs = check.legs().iter();
                let legs = legs.map(|leg| KeyedLeg::new(leg.into(), name(leg)));
                return Answer::Later(cluster.check(operation, legs.collect()));
            }
        };
        // What was taken was counted, and must get back in any flood.
        let is_back = matches!(operation, Operation::GiveBack | Operation::Renew);
        let counted = match node.counted(is_back) {
            Ok(counted) => counted,
            Err(error) => return Answer::Now(Err(error)),
        };
        let deadline = Deadline::after(self.0.deadline);
        let legs: SmallVec<[AskedLeg; 2]> = check.legs().iter().map(Into::into).collect();
        let keys = check.legs().iter().map(|leg| Value::from(name(leg)));
        let check = Encoded::new(operation, 0, legs.iter().zip(keys));
        Answer::Later(Box::pin(async move {
            let found = node.decide(check, deadline, counted).await?;
            Ok(found.decision(&legs))
        }))
    }

    fn reset(&self, legs: &[Leg<'_>]) -> Answer<()> {
        let keys: Vec<String> = legs.iter().map(|leg| self.0.names.name(leg)).collect();
        let node = match &self.0.servers {
            Servers::One(node) => Arc::clone(node),
            Servers::Cluster(cluster) => return Answer::Later(cluster.reset(keys)),
        };
        let counted = match node.counted(false) {
            Ok(counted) => counted,
            Err(error) => return Answer::Now(Err(error)),
        };
        let deadline = Deadline::after(self.0.deadline);
        let keys = keys.into_iter().map(Value::from).collect();
        Answer::Later(Box::pin(async move {
            let _counted = counted;
            node.delete(keys, Manner::Plain, deadline).await
        }))
    }

    fn storage_key(&self, leg: &Leg<'_>) -> Option<String> {
        Some(self.0.names.name(leg))
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.0.fallback.clone())
    }
}

fn first_nonce() -> i64 {
    (RandomState::new().hash_one(0_u8) >> 12) as i64
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("names", &self.names)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("has_secret", &self.secret.is_some())
            .field("deadline", &self.deadline)
            .field("connections", &self.connections)
            .field("max_in_flight", &self.most_in_flight)
            .finish_non_exhaustive()
    }
}
