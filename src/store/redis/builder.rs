//! The settings of a store on Redis.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, RwLock},
    time::Duration,
};

use tokio::runtime::Handle;

use super::{
    Inner, RedisStore, Servers,
    cluster::{Cluster, Connect},
    dispatcher::Dispatcher,
    key::KeyNames,
    pool::Pool,
    server::{CallContext, Server},
    url::Target,
};
#[cfg(feature = "testing")]
use super::{pool::Wire, simulated::SimulatedRedis};
use crate::{
    Clock, ConfigError,
    store::tasks::Tasks,
    store::{Fallback, denied::Denials, keyed::KeyedHash, lease::Leases, local::Local},
    telemetry,
};

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
    remembered_for: Duration,
}

impl RedisStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: "tt".to_owned(),
            secret: None,
            deadline: Duration::from_millis(50),
            connections: 1,
            most_in_flight: 4_096,
            clock: None,
            remembered_for: Duration::from_secs(1),
        }
    }

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

    /// How many connections to take turns on, to each node. Default: 1, which is
    /// enough for what one Redis thread decides.
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How many checks may wait for Redis at a time; in a cluster, for each
    /// node. Default: 4,096.
    ///
    /// One more fails at once: with [`StoreError::is_overloaded`](crate::StoreError::is_overloaded) while Redis
    /// answers, which [`OnStoreFailure::Allow`](crate::OnStoreFailure::Allow) does not
    /// let pass; with [`StoreError::is_unavailable`](crate::StoreError::is_unavailable) while Redis does not. A
    /// check whose deadline passes before its turn comes has failed in the same way.
    pub const fn max_in_flight(mut self, checks: usize) -> Self {
        self.most_in_flight = checks;
        self
    }

    /// For how long a denial may be given again without asking Redis. Default:
    /// 1 second; more than a minute is a minute; [`Duration::ZERO`] asks each time.
    ///
    /// Who was denied has no room before a known instant, whatever others take.
    /// Until then, and for no longer than this, the same caller is refused at once
    /// by the same policies, for any cost that has no room yet, also while Redis is
    /// away. Such a decision says [`Source::Cache`](crate::Source::Cache). It tells
    /// how the buckets stand at its own instant by what the denial said: what others
    /// took since then is not in it. Who waits for its `retry_after` has waited long
    /// enough, if nobody else took anything.
    ///
    /// **The danger**: what gives a caller room before its time is noticed so much
    /// later where it happens elsewhere. That is units given back or
    /// [reset](crate::Limiter::reset) by another process, data that Redis lost, a step of its
    /// clock, and other numbers for the same policy. What is done through a clone of
    /// this store is noticed before it returns, but for a credit or reset whose
    /// answer was lost, and which Redis comes to after that.
    ///
    /// Redis is always asked where a policy counts permits
    /// ([`Concurrency`](crate::Concurrency)), or is a
    /// [`SlidingLog`](crate::SlidingLog) of several entries (unless only the oldest
    /// is in the way); where a cost can never fit; where the policies lie in several
    /// slots of a cluster; and for whatever is not a plain taking: peeks, credits,
    /// [`take_up_to`](crate::Limiter::take_up_to).
    ///
    /// At most 16,384 denials are remembered, in 3 MB that are taken as they come
    /// (in 6.5 MB under four policies). A flood of denied callers pushes the oldest out,
    /// who cost a trip.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // what an administrator's tool gives back is to be felt at once
    /// let builder = RedisStore::builder().remember_denials_for(Duration::ZERO);
    /// let redis = builder.connect("redis://127.0.0.1/")?;
    /// # Ok(()) }
    /// ```
    pub const fn remember_denials_for(mut self, longest: Duration) -> Self {
        self.remembered_for = longest;
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
        let local = Local::new(self.clock.clone());
        self.build(local, |shared| {
            let (settings, runtime) = (shared.settings, &shared.runtime);
            let (connections, queue) = (settings.connections, settings.most_in_flight);
            Ok(match target {
                Target::Node(target) => {
                    let report = |error| telemetry::not_connected(&error);
                    let pool = Pool::connect(runtime, target, connections, queue, report)?;
                    Servers::One(shared.dispatcher(pool))
                }
                Target::Cluster(target, seeds) => {
                    let connect = Connect {
                        runtime: runtime.clone(),
                        settings: target,
                        connections,
                        max_in_flight: queue,
                        context: shared.context,
                        tasks: shared.tasks,
                    };
                    Servers::Cluster(Cluster::connect(connect, seeds, settings.deadline))
                }
            })
        })
    }

    /// Has a server decide that is simulated in this process: for tests. See
    /// [`SimulatedRedis`](crate::testing::SimulatedRedis).
    ///
    /// # Errors
    ///
    /// A setting cannot be used, or there is no Tokio runtime.
    #[cfg(feature = "testing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
    pub fn simulated(self, redis: &SimulatedRedis) -> Result<RedisStore, ConfigError> {
        let local = redis.local(self.clock.clone());
        self.build(local, |shared| {
            let wires = vec![Wire::Simulated(redis.clone())];
            let pool = Pool::new(Arc::clone(redis.name()), wires);
            Ok(Servers::One(shared.dispatcher(pool)))
        })
    }

    /// Builds a store on connections that their owner keeps.
    #[cfg(feature = "fred")]
    pub(super) fn with_pool(
        self,
        pool: impl FnOnce(&Handle) -> Pool,
    ) -> Result<RedisStore, ConfigError> {
        let local = Local::new(self.clock.clone());
        self.build(local, |shared| {
            let pool = pool(&shared.runtime);
            Ok(Servers::One(shared.dispatcher(pool)))
        })
    }

    fn build(
        self,
        local: Local,
        connect: impl FnOnce(Shared<'_>) -> Result<Servers, ConfigError>,
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
        let fallback = Fallback::with_clock(Arc::new(Arc::clone(&local.clock)));
        let servers = connect(Shared {
            settings: &self,
            runtime: runtime.clone(),
            context: CallContext::new(
                self.deadline,
                names.clone(),
                first_nonce(),
                self.clock.clone(),
            ),
            tasks: fallback.tasks().clone(),
            random: local.hash,
        })?;
        let denials = Denials::new(self.remembered_for, &local);
        let leases = Leases::new(local, runtime.clone());
        Ok(RedisStore(Arc::new(Inner {
            servers: RwLock::new(Some(servers)),
            runtime,
            names,
            deadline: self.deadline,
            denials,
            fallback,
            leases,
        })))
    }
}

/// What the servers of a store share.
struct Shared<'a> {
    settings: &'a RedisStoreBuilder,
    runtime: Handle,
    context: Arc<CallContext>,
    tasks: Tasks,
    random: KeyedHash,
}

impl Shared<'_> {
    fn dispatcher(self, pool: Pool) -> Arc<Dispatcher> {
        let server = Server::new(pool, self.context, self.random);
        Dispatcher::new(
            self.runtime,
            server,
            self.settings.most_in_flight,
            self.tasks,
        )
    }
}

fn first_nonce() -> i64 {
    (RandomState::new().hash_one(0_u8) >> 12) as i64
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("has_secret", &self.secret.is_some())
            .field("deadline", &self.deadline)
            .field("connections", &self.connections)
            .field("max_in_flight", &self.most_in_flight)
            .field("remember_denials_for", &self.remembered_for)
            .finish_non_exhaustive()
    }
}
