//! The settings of a store on Redis.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use tokio::sync::Semaphore;

use super::{
    RedisStore,
    cluster::Cluster,
    connect::{Access, Credentials},
    dispatcher::Dispatcher,
    key::KeyNames,
    pool::Pool,
    shared::Shared,
    unleased::{Servers, Unleased},
    url::Target,
};
use crate::{
    Clock, ConfigError,
    fingerprint::Secret,
    metrics::histogram::{CALL_SECONDS, CHECKS_PER_CALL, MICROSECONDS, Recording},
    store::{
        Fallback,
        denial_cache::DenialCache,
        lease::{Leases, LeasingStore},
        process::ProcessContext,
    },
    telemetry,
    util::{random::random, runtime::runtime_with_timers},
};

/// Stands in for a timeout that the clock cannot express.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400 * 365);

/// Builds a [`RedisStore`] with another prefix, timeout or other settings.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::RedisStore;
///
/// let settings = RedisStore::builder()
///     .prefix("shop")
///     .secret("of all processes")
///     .timeout(Duration::from_millis(20));
/// // `connect` returns the store. `validate` checks the same settings without a server.
/// settings.validate("redis://127.0.0.1/")?;
///
/// let error = settings.prefix("").validate("redis://127.0.0.1/").unwrap_err();
/// assert_eq!(error.code(), "key-prefix");
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisStoreBuilder {
    name: String,
    prefix: String,
    secret: Secret,
    has_empty_secret: bool,
    timeout: Duration,
    connections: usize,
    max_in_flight: usize,
    clock: Option<Arc<dyn Clock>>,
    denial_cache_ttl: Duration,
    access: Access,
}

impl RedisStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            name: "redis".to_owned(),
            prefix: "tt".to_owned(),
            secret: Secret::default(),
            has_empty_secret: false,
            timeout: Duration::from_millis(50),
            connections: 1,
            max_in_flight: 4_096,
            clock: None,
            denial_cache_ttl: Duration::from_secs(1),
            access: Access::default(),
        }
    }

    /// Sets the label `store` of the store's [metrics](crate::metrics). Default: `redis`.
    ///
    /// Stores with one name are added up.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the prefix of all keys: 1 to 64 printable ASCII characters without braces.
    /// Default: `tt`.
    ///
    /// Applications that share a Redis and not their limits need different prefixes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Hashes callers' keys with this secret, so that a reader of Redis cannot test guesses
    /// of addresses or API keys. Default: none.
    ///
    /// All processes need the same secret. A change of the secret gives all callers new buckets.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        let secret = secret.into();
        self.has_empty_secret = secret.is_empty();
        self.secret = Secret::new(&secret);
        self
    }

    /// Limits how long a check may take in total. Default: 50 ms.
    ///
    /// After that the check fails. It may still be charged. Zero is an error when the
    /// store is built.
    ///
    /// Each step of an attempt to connect may take four times as long, but at least one second
    /// and at most ten.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the number of connections to each node, which calls use in turn. At least 1.
    /// Default: 1, which is enough in a network that loses no packets, because Redis decides in one
    /// thread. [Sizing](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/sizing/#connections) shows
    /// when four are better.
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Limits the checks that wait for Redis at a time; in a cluster, for each node.
    /// At least 1. Default: 4,096.
    ///
    /// Further checks fail at once. While Redis answers, a check fails with
    /// [`StoreError::is_overloaded`](crate::StoreError::is_overloaded), which
    /// [`OnStoreFailure::Allow`](crate::OnStoreFailure::Allow) does not let pass. While Redis
    /// does not answer, it fails with
    /// [`StoreError::is_unavailable`](crate::StoreError::is_unavailable). A check that cannot
    /// be sent before its timeout fails in the same way.
    ///
    /// The checks of [shadow](crate::Policy::shadow) policies take no room where they share the
    /// call of a check. Among requests without enforced policies, at most 2,000 take room.
    pub const fn max_in_flight(mut self, checks: usize) -> Self {
        self.max_in_flight = checks;
        self
    }

    /// Limits how long a denial is repeated without asking Redis. Default: 1 second, at most
    /// a minute. [`Duration::ZERO`] disables the cache.
    ///
    /// A denied caller cannot be admitted before a known time, whatever other callers do.
    /// Until then, and no longer than this, the same policies deny the caller at once, for any
    /// cost that does not fit yet, even while Redis is down. Such a decision has
    /// [`Source::Cache`](crate::Source::Cache). It states the buckets at its own instant,
    /// computed from the denial, without what other callers have taken since. A caller that
    /// waits for its `retry_after` has waited long enough, unless another caller took units.
    ///
    /// **The danger**: some events admit a caller early, and this process notices them late if
    /// they happen elsewhere. These are refunds and [resets](crate::Limiter::reset) by another
    /// process, data that Redis lost, a step of its clock, and new numbers for the same policy.
    /// Refunds and resets through a clone of this store are noticed before they return. The
    /// exception is one whose reply was lost and which Redis executes later.
    ///
    /// Redis is always asked
    ///
    /// - if a policy counts permits ([`Concurrency`](crate::Concurrency)), or is a
    ///   [`SlidingLog`](crate::SlidingLog) of several entries (unless only the oldest is in
    ///   the way);
    /// - if a cost can never fit;
    /// - if the policies are in several slots of a cluster;
    /// - for all operations except a plain check: peeks, credits,
    ///   [`take_up_to`](crate::Limiter::take_up_to).
    ///
    /// The cache holds 16,384 denials in at most 3 MB (6.5 MB with four policies), allocated
    /// as needed. In a flood of denied callers the oldest entries are evicted, and their
    /// callers cost a round trip.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // refunds of an administrator's tool take effect at once
    /// let builder = RedisStore::builder().denial_cache_ttl(Duration::ZERO);
    /// let redis = builder.connect("redis://127.0.0.1/")?;
    /// # Ok(()) }
    /// ```
    pub const fn denial_cache_ttl(mut self, ttl: Duration) -> Self {
        self.denial_cache_ttl = ttl;
        self
    }

    /// Takes the time from `clock` instead of Redis: for tests, and for services that refuse
    /// `TIME` in scripts.
    ///
    /// **The danger**: the clocks of all processes must agree. A clock that is ahead admits
    /// callers early everywhere. The [control document](RedisStore::control) still follows the
    /// clock of Redis.
    pub fn clock(mut self, clock: Arc<impl Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Takes the user and the password from `read` before each attempt to connect, in place of those in
    /// the URL: for passwords that are rotated, and tokens that expire. Default: those in the URL.
    ///
    /// They are for the server, for every node of a cluster, or for the primary behind Sentinel. The
    /// sentinels keep those in the URL. An empty user means the user in the URL or, without one,
    /// Redis's default user. If `read` returns an error, the attempt fails, and the next one follows
    /// after a pause of at most 1.5 seconds.
    ///
    /// A connection keeps the user with which it began. When the server ends it, as managed services do
    /// with expired tokens, the next one is made at once.
    ///
    /// **The danger**: `read` runs in the runtime, so it must not block. Let a task of your own fetch
    /// tokens, and return the latest one here. To read a small file is fine.
    ///
    /// ```
    /// use tower_throttle::RedisStore;
    ///
    /// let builder = RedisStore::builder().credentials(|| {
    ///     let password = std::fs::read_to_string("/run/secrets/redis-password")?;
    ///     Ok(("app".to_owned(), password.trim_end().to_owned()))
    /// });
    /// builder.validate("redis-cluster://redis-1,redis-2/")?;
    ///
    /// // the URL may name the user, but no second password
    /// let error = builder.validate("redis://app:secret@redis-1/").unwrap_err();
    /// assert_eq!(error.code(), "redis-url");
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn credentials(
        mut self,
        read: impl Fn() -> io::Result<(String, String)> + Send + Sync + 'static,
    ) -> Self {
        self.access.credentials = Some(Credentials(Arc::new(read)));
        self
    }

    /// Trusts the certificate authorities in this PEM file, and no others, for `rediss://` URLs.
    /// Default: those of the system or, if `SSL_CERT_FILE` names a file, those in it.
    ///
    /// The files of all TLS settings are read when the store is built, which reports mistakes, and again
    /// for each connection. So a renewed certificate needs no restart. While a file cannot be used, no
    /// new connection is made.
    ///
    /// All TLS settings need the feature `redis-rustls` and a URL with TLS. Otherwise, they are an error
    /// when the store is built.
    ///
    /// ```no_run
    /// use tower_throttle::RedisStore;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = RedisStore::builder()
    ///     .tls_authorities("/etc/redis/ca.pem")
    ///     .tls_client_certificate("/etc/redis/app.pem")
    ///     .tls_client_key("/etc/redis/app.key")
    ///     .connect("rediss://redis.internal/")?;
    /// # Ok(()) }
    /// ```
    pub fn tls_authorities(mut self, pem: impl Into<PathBuf>) -> Self {
        self.access.tls.authorities = Some(pem.into());
        self
    }

    /// Expects this name in the certificate of every server, in place of the host to which a connection
    /// is made. Default: that host.
    ///
    /// Use it if servers are known by address, and their certificates have names: behind Sentinel, in a
    /// cluster that announces addresses, or through a tunnel. It is also the name that the handshake
    /// asks for (SNI), except at the primary behind Sentinel.
    ///
    /// **The danger**: a certificate with this name serves for every node. Choose a name that only
    /// these servers have.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.access.tls.server_name = Some(name.into());
        self
    }

    /// Shows the certificate in this PEM file to servers that ask for one (`tls-auth-clients`, mutual
    /// TLS), with the certificates between it and its authority behind it. Default: none.
    pub fn tls_client_certificate(mut self, pem: impl Into<PathBuf>) -> Self {
        self.access.tls.client_certificate = Some(pem.into());
        self
    }

    /// Names the PEM file of the private key of
    /// [`tls_client_certificate`](Self::tls_client_certificate). Default: the file of the certificate.
    ///
    /// A key with a passphrase cannot be read.
    pub fn tls_client_key(mut self, pem: impl Into<PathBuf>) -> Self {
        self.access.tls.client_key = Some(pem.into());
        self
    }

    /// Connects to one node or to a cluster. Returns at once. See
    /// [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// Returns an error if the URL or a setting cannot be used, or if there is no Tokio runtime.
    pub fn connect(self, url: &str) -> Result<RedisStore, ConfigError> {
        let target = Target::of(url, &self.access)?;
        let process = ProcessContext::new(self.clock.clone());
        self.build(process, |shared| match target {
            Target::Node(settings) => {
                let report = |error| telemetry::not_connected(&error);
                let pool = Pool::connect(shared, settings, report, shared.first_grace());
                Servers::One(Dispatcher::new(pool, shared))
            }
            Target::Cluster(settings, seeds) => {
                let shared = Arc::clone(shared);
                let (cluster, keeper) = Cluster::connect(shared, settings, seeds);
                let _keeper = Arc::new(keeper);
                Servers::Cluster { cluster, _keeper }
            }
        })
    }

    /// Builds a store on connections that their owner keeps. `process`: makes the context of
    /// the process from the store's clock.
    #[cfg(any(feature = "redis-client", feature = "testing"))]
    pub(crate) fn with_pool(
        self,
        process: impl FnOnce(Option<Arc<dyn Clock>>) -> ProcessContext,
        pool: impl FnOnce(&tokio::runtime::Handle) -> Pool,
    ) -> Result<RedisStore, ConfigError> {
        let process = process(self.clock.clone());
        self.build(process, |shared| {
            let pool = pool(&shared.runtime);
            Servers::One(Dispatcher::new(pool, shared))
        })
    }

    /// Returns what is wrong with the settings, one of them at a time.
    fn zero_setting(&self) -> Option<ConfigError> {
        let settings = [
            ("timeout", self.timeout.is_zero()),
            ("connections", self.connections == 0),
            ("max_in_flight", self.max_in_flight == 0),
            ("secret", self.has_empty_secret),
        ];
        let mut zero = settings.into_iter().filter(|(_, is_zero)| *is_zero);
        zero.next().map(|(setting, _)| ConfigError::zero(setting))
    }

    /// Checks the settings and the URL as [`connect`](Self::connect) does, without connecting, to check
    /// a configuration before it is deployed.
    ///
    /// # Errors
    ///
    /// Returns the first mistake.
    pub fn validate(&self, url: &str) -> Result<(), ConfigError> {
        Target::of(url, &self.access)?;
        KeyNames::new(self.prefix.clone(), self.secret)?;
        self.zero_setting().map_or(Ok(()), Err)
    }

    fn build(
        self,
        process: ProcessContext,
        connect: impl FnOnce(&Arc<Shared>) -> Servers,
    ) -> Result<RedisStore, ConfigError> {
        if let Some(error) = self.zero_setting() {
            return Err(error);
        }
        let fallback = Fallback::with_clock(Arc::new(Arc::clone(&process.clock)));
        let runtime = runtime_with_timers().ok_or_else(|| {
            ConfigError::new(
                "no-runtime",
                "no Tokio runtime with timers to connect in; build the store inside a runtime with `enable_all()`",
            )
        })?;
        let shared = Arc::new(Shared {
            runtime: runtime.clone(),
            tasks: fallback.0.context.tasks.clone(),
            names: KeyNames::new(self.prefix, self.secret)?,
            timeout: self.timeout.min(LONGEST_TIMEOUT),
            connections: self.connections,
            max_in_flight: self.max_in_flight.min(Semaphore::MAX_PERMITS),
            clock: self.clock,
            random: process.hash,
            nonce: ((random() >> 12) as i64).into(),
            call_seconds: Recording::new(CALL_SECONDS, MICROSECONDS),
            checks_per_call: Recording::new(CHECKS_PER_CALL, 1.0),
        });
        let store = Arc::new(Unleased {
            servers: RwLock::new(Some(connect(&shared))),
            denials: DenialCache::new(self.denial_cache_ttl, &process),
            fallback,
            shared: Arc::clone(&shared),
            name: self.name,
            control: Mutex::default(),
        });
        let leases = Leases::new(process, runtime);
        let tasks = shared.tasks.clone();
        Ok(RedisStore {
            leasing: LeasingStore::new(store.clone(), leases, tasks, self.timeout),
            store,
        })
    }
}
