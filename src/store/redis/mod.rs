//! Buckets in Redis. One script call decides the buckets of one slot.

pub(crate) mod address;
mod builder;
mod callers;
pub(crate) mod client_reply;
pub(crate) mod cluster;
pub(crate) mod connect;
pub(crate) mod connection;
mod control;
mod dispatcher;
#[cfg(feature = "redis-client")]
mod handed_in;
mod health_check;
pub(crate) mod key;
mod latency;
pub(crate) mod pool;
pub(crate) mod reply;
pub(crate) mod request;
mod script;
mod server;
mod shared;
mod supervisor;
mod tls;
mod unleased;
pub(crate) mod url;

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use self::unleased::Unleased;
pub use self::{builder::RedisStoreBuilder, callers::KnownCallers};
use super::{Answer, Charge, Check, Fallback, Store, lease::LeasingStore};
use crate::{
    ConfigError, Decision, Fingerprint, Key, metrics::store::StoreMetrics,
    store::in_runtime::InRuntime,
};

/// Keeps buckets in Redis or Valkey, so that a fleet of processes shares them.
///
/// One script call decides each check, whatever the number of policies. It is atomic, uses the
/// server's clock, and charges all policies or none. In a cluster, a check takes
/// [one call for each slot](#a-cluster): policies with different keys, and shared ones, are in
/// different slots.
///
/// At low load each check is sent at once, in a call of its own. While several calls are under
/// way, the checks that come meanwhile share the next call, and equal checks in a row are decided
/// as one. Each check gets the answer that it would get alone, in the order in which they came.
///
/// Needs Redis 6 or later, or Valkey. Redis 6 needs the default `lua-replicate-commands yes`.
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
/// **Connecting** happens in the background and never ends: the application starts without
/// Redis, and connects when Redis is there. Checks wait for the first attempt to connect, each within
/// its [timeout](RedisStoreBuilder::timeout), until the store is 250 ms old, or one timeout if that is
/// longer. After that, a check without a connection fails at once. Each policy's
/// [`OnStoreFailure`](crate::OnStoreFailure) decides what failing means.
///
/// **A circuit breaker** stops asking a server that fails. It opens after five failed calls in a
/// row. It also opens after ten failed calls within 200 ms, if they are at least half of the
/// calls. A failed call is one without a reply, with an error of the server, or with the reply to
/// another call. While the breaker is open, checks fail at once. After a pause, one call probes
/// whether the server answers again.
/// The pause is 50 ms and doubles with each failed probe, up to a second, plus up to a
/// quarter at random. A lost connection does not open the breaker: without a connection
/// checks fail at once in any case.
///
/// **A lost connection is made again at once.** Checks wait up to 10 ms for it, then they
/// fail until it is there. If connecting fails, further attempts follow after pauses that
/// grow from 50 ms to 1 s, each up to a half more or less at random. Behind Sentinel, each attempt
/// asks another sentinel of the URL first.
///
/// A connection without traffic is asked for the time every 5 s, and is replaced if no reply
/// comes. So a flow that a NAT or a firewall has dropped is noticed, or kept alive.
///
/// **Outside a Tokio runtime** (a plain thread that blocks on a check), a check uses the runtime
/// that the store was built in. If that runtime has a single thread, nothing may drive it then, so
/// the check fails.
///
/// **A hot key** may be decided without a round trip: a policy with
/// [`lease`](crate::Policy::lease) leases units in
/// batches, in the background. Its page states the limits. Clones share the leases, which
/// cover at most 4,096 callers; Redis decides the others.
///
/// **Never charged twice.** A check is sent again only if nothing ran, which is after three
/// replies:
///
/// - `NOSCRIPT`: the store sends the text of the script.
/// - `MOVED` or `ASK` of a cluster: the store asks the node that the reply names.
/// - `TRYAGAIN` of a cluster, where some keys of the call have moved: the store sends the check
///   alone, and then key by key.
///
/// **Denials are cached** for up to a second in each process. While only time can admit a
/// caller, the caller is denied without a round trip. See
/// [`denial_cache_ttl`](RedisStoreBuilder::denial_cache_ttl).
///
/// **State is small and expires**: one string for each policy and caller, under a key of fixed
/// size. Buckets and windows are an integer. [`Limiter::storage_keys`](crate::Limiter::storage_keys)
/// prints the keys. A key expires when a missing one means the same. Each time that Redis loses its
/// data, each caller gets at most one new burst.
///
/// Cloning is cheap and shares the connections. They close when the last clone is dropped
/// and all leased units are back. They work in the Tokio runtime that the store was built
/// in: when that runtime ends, the store fails.
///
/// # Rights
///
/// A Redis user needs these rights and no others:
///
/// ```text
/// ACL SETUSER app on >password resetkeys ~tt?{* resetchannels -@all +evalsha +eval +time +get +psetex +pttl +pexpire +del
/// ```
///
/// `tt` is the [prefix](RedisStoreBuilder::prefix), and `?` the letter of an algorithm. No
/// prefix contains `{`, so the pattern covers no other prefix that starts with `tt`. Write a
/// backslash before a `*`, `?`, `[` or backslash in a prefix. The line is the same for Redis 6
/// (without `resetchannels` in 6.0), 7 and Valkey. Some setups need more:
///
/// - in a cluster `+cluster|slots +asking`, on every node;
/// - behind Sentinel `+role`; and at the sentinels, for a user of their own (those of
///   Redis 6.0 have no users), `+sentinel|get-master-addr-by-name +sentinel|sentinels`;
/// - for a URL that names a database other than 0, `+select`;
/// - for [`callers`](Self::callers), which is for tools and admin pages, `+scan`.
///
/// `+pttl` and `+pexpire` let unexpected data under a caller's key expire. Without them, that
/// caller is answered with 503 until an operator deletes the key. `+del` is for resets and
/// released holds. Without any other right, each check that needs it fails, charges nothing, and
/// [`OnStoreFailure`](crate::OnStoreFailure) decides. On connecting, the client also tries `INFO`
/// and `CLIENT ID` and works without them; they may be in `ACL LOG`.
///
/// `+eval` grants nothing else, because a script has only the rights of its user. It is needed
/// because Redis forgets scripts when it restarts or fails over. Without it, an operator must load
/// the scripts beforehand, and again after each start: [`scripts`](Self::scripts). Each connection then
/// tries once for each script, which `ACL LOG` lists.
///
/// # A cluster
///
/// `redis-cluster://host:port,host:port/` names some nodes of a cluster, and the store learns
/// the others from them. Each check goes to the primary of its slot. Slots may move and
/// replicas may take over meanwhile. A node that fails or hangs fails only the checks of its
/// own slots. Set `cluster-require-full-coverage no`, or the other nodes refuse theirs, too.
///
/// Policies with the same key are in one slot, and are decided as on one node. Policies with other
/// keys are in other slots. [Shared](crate::Policy::shared) policies are in another slot, too, all
/// in the same one. A check of several slots takes slot after slot, in the order of its policies.
/// When one denies, what the slots before it took is refunded, and the slots behind it are only
/// peeked at. So in the end all policies are charged or none, and the decision names all that
/// denied, but not in one instant:
///
/// - Until the units are refunded, one round trip later and at most one
///   [timeout](RedisStoreBuilder::timeout), other callers may be denied for lack of them. No
///   caller is admitted without room. Put shared policies last: then they are charged only
///   for callers whose own policies had room.
/// - If a reply is lost, the check is an error, and units may stay taken that no request
///   used.
/// - A reservation in a queue is refunded only while no other follows it.
/// - While a slot moves, policies with the same key may be decided one by one, too, and all of
///   the above holds for them.
#[derive(Clone, Debug)]
pub struct RedisStore {
    store: Arc<Unleased>,
    /// The same store, with leases in front of it.
    leasing: LeasingStore,
}

/// How a check is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMode {
    /// Through the dispatcher: in a call with others, or directly.
    Batched,
    /// In a call of its own.
    Alone,
    /// In a call of its own, to the node that imports the slot. That node serves its keys
    /// only if asked so.
    Asking,
}

impl RedisStore {
    /// Connects to one node, to a cluster, or through sentinels, with the default settings.
    /// Returns at once. Call it inside a Tokio runtime.
    ///
    /// - `redis://user:password@host:port/database` is one node. It takes no query.
    /// - `redis-cluster://user:password@host:port,host:port/` is a cluster. Further nodes may
    ///   also be listed as in `?node=host:port&node=host:port`.
    /// - `redis-sentinel://user:password@host:port,host:port/database?sentinelServiceName=mymaster`
    ///   is the primary that these sentinels name, now and after each failover. User and
    ///   password are the primary's; `sentinelUsername` and `sentinelPassword` are those of
    ///   the sentinels.
    ///
    /// `rediss` uses TLS and needs the feature `redis-rustls`. It trusts the system's
    /// certificate authorities or, if `SSL_CERT_FILE` names a file, those in it. The nodes of
    /// a cluster must then announce the names in their certificates. The
    /// [builder](RedisStoreBuilder::tls_authorities) has settings for other authorities, another name
    /// and a client's certificate.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL cannot be used, or if there is no Tokio runtime. An absent
    /// server is not an error.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(url)
    }

    /// Starts a store with settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// Waits up to a second until refunds and settlements have reached Redis, and then closes the
    /// connections of all clones. It refunds permits of requests that have ended, reservations of
    /// callers that left, and leased units. It settles requests that were dropped: by default, all
    /// units that they held are charged.
    ///
    /// Call it last, when no request is being served. A process that just ends may leave
    /// permits behind until they expire. A later check fails at once, and
    /// [`OnStoreFailure`](crate::OnStoreFailure) decides. A client that was handed in stays
    /// open.
    ///
    /// ```no_run
    /// # use tower_throttle::RedisStore;
    /// # async fn serve(redis: RedisStore) -> Result<(), std::io::Error> {
    /// # let (listener, app) = (tokio::net::TcpListener::bind("127.0.0.1:0").await?, axum::Router::new());
    /// # async fn ctrl_c() {}
    /// axum::serve(listener, app).with_graceful_shutdown(ctrl_c()).await?;
    /// redis.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self) {
        let refunded = async {
            self.leasing.close().await;
            self.store.fallback.0.context.tasks.are_done().await;
        };
        let in_time = async { Ok(timeout(SHUTDOWN_TIMEOUT, refunded).await.is_ok()) };
        // Units that have not been refunded by then stay taken until they expire.
        let _ = InRuntime::new(self.store.shared.runtime.clone(), in_time).await;
        self.store.shut_down();
    }
}

/// How long a shutdown waits for refunds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

impl Store for RedisStore {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.leasing.check(check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        match self.leasing.reset(charges).run_to_completion() {
            Answer::Later(answer) => self.store.later(answer),
            now => now,
        }
    }

    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        self.store.storage_key(charge)
    }

    fn fingerprint(&self, key: &Key) -> Fingerprint {
        self.store.fingerprint(key)
    }

    fn fallback(&self) -> Option<Fallback> {
        self.store.fallback()
    }

    fn metrics(&self) -> StoreMetrics {
        StoreMetrics {
            leased_units: Some(self.leasing.leases.units()),
            ..self.store.metrics()
        }
    }
}
