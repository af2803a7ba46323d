//! Buckets in Redis, decided by one script call where they lie together.

mod address;
mod backoff;
mod builder;
mod cluster;
mod connect;
mod connection;
mod deadline;
mod dispatcher;
mod either;
#[cfg(test)]
mod forged;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(feature = "fred")]
mod handed_in;
mod key;
mod latency;
mod pool;
mod ready;
mod reply;
mod request;
mod script;
mod server;
#[cfg(feature = "testing")]
mod simulated;
mod supervisor;
mod task;
mod url;
mod worker;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{runtime::Handle, time::timeout};

pub use self::builder::RedisStoreBuilder;
#[cfg(feature = "testing")]
pub use self::simulated::{Served, SimulatedRedis};
use self::{
    cluster::Cluster, deadline::Deadline, dispatcher::Dispatcher, key::KeyNames,
    request::ScriptRequest, task::InRuntime,
};
use super::{
    Answer, Charge, Check, Fallback, Store,
    denied::{Asking, Before, Denials, answered},
    finished::finished,
    lease::{self, Leases, Lender},
};
use crate::{ConfigError, Decision, StoreError, store::tasks::Tasks};

/// Keeps buckets in Redis or Valkey, so that a fleet of processes shares them.
///
/// Each check is decided in one script call, whatever the number of policies
/// ([but](#a-cluster) for shared ones in a cluster): atomic, by the server's clock,
/// all charged or none. A few checks
/// at a time go out by themselves, at once. Those that come while more are under way
/// go out together in the next call; those that ask the
/// same for one caller as one entry of it, which says how many they are. Each is
/// answered as if it had come by itself, in the order in which it came. Needs
/// Redis 6 or later (6 with `lua-replicate-commands` as it is by default, `yes`), or
/// Valkey.
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
/// is each policy's [`OnStoreFailure`](crate::OnStoreFailure).
///
/// **A server that does not answer is left alone.** Five calls in a row without
/// an answer, or ten that are half of all within 200 ms, open a breaker: checks
/// fail at once then, but for a single call after a pause, which finds out
/// whether it answers again. The pause is 50 ms; each such call that gets no
/// answer makes the next one twice as long, up to a second and up to a quarter
/// more at random. Without a connection there is nothing to leave alone: checks
/// fail at once.
///
/// **A lost connection is remade at once.** Checks wait up to 10 ms for it, then they
/// fail until it is there. If connecting fails, further attempts follow after pauses
/// that grow from 50 ms to 1 s, each up to a half more or less at random. A connection
/// without traffic is asked for the time every 5 s, and is replaced if no reply comes:
/// so a flow that a NAT or a firewall has dropped is noticed, or kept alive. Behind
/// Sentinel each attempt asks another sentinel of the URL first.
///
/// **Outside of a Tokio runtime** (a plain thread that blocks on a check), a check uses
/// the runtime that the store was built in. If that one is of a single thread, which
/// nothing may drive then, the check fails.
///
/// **A hot key** may be decided upon without a trip: a policy with
/// [`lease`](crate::Policy::lease) has units paid
/// for in advance, in portions, in the background. Its limits stand there. Clones
/// share what is held, for 4,096 callers at most: others are decided upon by Redis.
///
/// **Never charged twice.** A check is sent once. Only the answer "no such
/// script", which says that nothing ran, is followed by sending the script's text;
/// and in a cluster, "not here" by sending it to where that answer says.
///
/// **A denial is remembered** for up to a second, in each process: while only time
/// can let a caller in, it is refused without a trip. See
/// [`remember_denials_for`](RedisStoreBuilder::remember_denials_for).
///
/// **State is small and leaves by itself**: one string for each policy and
/// caller, an integer for buckets and windows, under a key of fixed size
/// ([`Limiter::storage_keys`](crate::Limiter::storage_keys) prints it), which expires when it means the same as none. If Redis loses its
/// data, each caller gets at most one new burst.
///
/// Cloning is cheap and shares the connections. They close when the last clone
/// drops (and units that were paid for in advance are back), and work in the Tokio
/// runtime that the store was built in: when that ends, the store has failed.
///
/// # Rights
///
/// A user needs these, and no others:
///
/// ```text
/// ACL SETUSER app on >password resetkeys ~tt?{* resetchannels -@all +evalsha +eval +time +get +psetex +incrby +pexpireat +pttl +pexpire +del
/// ```
///
/// `tt` is the [prefix](RedisStoreBuilder::prefix). `?` stands for the letter of an
/// algorithm, and `{` is in no prefix: so the pattern covers no other prefix that starts
/// with `tt`. Write a backslash before a `*`, `?`, `[` or backslash in a prefix. The line is the same for Redis 6
/// (where 6.0 knows no `resetchannels`), 7 and Valkey. To it come
///
/// - in a cluster `+cluster|slots +asking`, on every node;
/// - behind Sentinel `+role`, and at the sentinels, for a user of their own (those of
///   Redis 6.0 know of no users),
///   `+sentinel|get-master-addr-by-name +sentinel|sentinels`;
/// - for a database other than 0 `+select`.
///
/// `+pttl` and `+pexpire` let foreign data under a caller's key expire: without
/// them that caller is answered with 503 until somebody deletes it. `+incrby` and
/// `+pexpireat` spare the server work: without them a bucket in use is written anew
/// each time, and `ACL LOG` tells of what was tried before. `+del` is for
/// resets. Without any of the others each check that needs it fails, charges nothing, and
/// [`OnStoreFailure`](crate::OnStoreFailure) decides. (Where `+psetex` alone is taken
/// away later, a bucket in use does not need it.) On connecting the client asks
/// `INFO` and `CLIENT ID`, too, and does without: they may stand in `ACL LOG`.
///
/// `+eval` opens nothing: a script may do what its user may. It is there because
/// Redis forgets scripts when it starts or fails over. Where it is not given, somebody
/// must load them beforehand, again after each start: [`scripts`](Self::scripts).
///
/// # A cluster
///
/// `redis-cluster://host:port,host:port/` names some nodes of a cluster, which
/// tell of the rest. Each check goes to the primary of its slot. Slots may move
/// and replicas may take over meanwhile. A node that fails or stands still fails
/// only the checks of its own slots; set `cluster-require-full-coverage no`, or
/// Redis lets the others refuse theirs, too.
///
/// The policies of one caller lie in one slot, and are decided as on one node.
/// [Shared](crate::Policy::shared) policies lie in another. A check of both takes
/// slot after slot, in the order of its policies; where one refuses, what those
/// before it gave is given back, and those behind it are only looked at. So in the
/// end all are charged or none, and the decision names all that refused, but not
/// in one instant:
///
/// - Until units are back, one round trip later and at most one
///   [deadline](RedisStoreBuilder::deadline), others may be refused for want of them.
///   Nobody is admitted for whom there is no room. Put shared policies last: then
///   they only see callers whose own policies had room.
/// - Where an answer is lost on the way, the check is an error, and units may
///   stay taken that nobody used.
/// - A place in a queue is given back only while nobody stands behind it.
/// - The same holds for the policies of one caller while their slot is on its
///   way from one node to another.
#[derive(Clone, Debug)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    /// None once it was shut down: with the last of those that use them, the
    /// connections close.
    servers: RwLock<Option<Servers>>,
    runtime: Handle,
    names: KeyNames,
    deadline: Duration,
    /// `None` where they are not remembered.
    denials: Option<Arc<Denials>>,
    fallback: Fallback,
    leases: Leases,
}

/// How a check is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMode {
    /// In a call with others.
    Batched,
    /// In a call of its own.
    Alone,
    /// In a call of its own, to the node that imports the slot. That node serves its keys
    /// only if asked so.
    Asking,
}

#[derive(Clone, Debug)]
enum Servers {
    One(Arc<Dispatcher>),
    Cluster(Arc<Cluster>),
}

impl RedisStore {
    /// Connects to one node, to a cluster, or by way of sentinels, with the default settings. Returns
    /// at once. Call it inside a Tokio runtime.
    ///
    /// `redis://user:password@host:port/database` is one node and takes no query,
    /// `redis-cluster://user:password@host:port,host:port/` is a cluster; its other
    /// nodes may also stand behind it, as in `?node=host:port&node=host:port`.
    /// `redis-sentinel://user:password@host:port,host:port/database?sentinelServiceName=mymaster`
    /// is the primary that these sentinels name, now and after each failover; user and
    /// password are the primary's, `sentinelUsername` and `sentinelPassword` are theirs.
    /// `rediss` for TLS, with the feature `redis-rustls`. It trusts the authorities
    /// that the system does, or, where `SSL_CERT_FILE` names a file, those in there.
    /// The names by which a cluster calls its nodes must then be those of their
    /// certificates.
    ///
    /// # Errors
    ///
    /// The URL cannot be used, or there is no Tokio runtime. An absent server
    /// is not an error.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(url)
    }

    /// Starts a store with settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// Lets what is on its way back to Redis arrive (permits of requests that
    /// have ended, places of callers who left, units paid for in advance), for at most a second, and closes
    /// the connections, those of all clones.
    ///
    /// Call it last, when nothing is served any more: a process that just ends
    /// may leave permits behind, until they expire. A check after that fails at
    /// once, and [`OnStoreFailure`](crate::OnStoreFailure) decides. A client
    /// that was handed in stays open.
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
        let all_is_back = async {
            lease::close(self).await;
            self.0.fallback.tasks().are_done().await;
        };
        let until_back = async { Ok(timeout(PATIENCE, all_is_back).await.is_ok()) };
        // Whatever is left then stays taken until it expires.
        let _ = InRuntime::new(self.0.runtime.clone(), until_back).await;
        let servers = self.0.servers.write();
        let servers = servers.unwrap_or_else(PoisonError::into_inner).take();
        drop(servers);
        if let Some(denials) = &self.0.denials {
            denials.forget_all();
        }
    }
}

/// How long to wait for what is on its way.
const PATIENCE: Duration = Duration::from_secs(1);

impl Inner {
    fn servers(&self) -> Result<Servers, StoreError> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || StoreError::not_sent("the store was shut down");
        servers.clone().ok_or_else(closed)
    }
}

/// What only the server decides, or has decided a moment ago.
impl RedisStore {
    fn decide(&self, check: &Check<'_>) -> Answer<Decision> {
        let denials = self.0.denials.as_ref();
        let asking = match denials.map(|denials| denials.before(check)) {
            Some(Before::Denied(decision)) => return Answer::Now(Ok(decision)),
            Some(Before::Ask(asking)) => asking,
            None => None,
        };
        match asking.as_ref().is_some_and(Asking::forgets) {
            // Who gives back and leaves does not know when it is done.
            true => finished(self.send(check, asking)),
            false => self.send(check, asking),
        }
    }

    fn send(&self, check: &Check<'_>, asking: Option<Asking>) -> Answer<Decision> {
        let request = ScriptRequest::new(check);
        let deadline = Deadline::after(self.0.deadline);
        let dispatcher = match self.0.servers() {
            Err(closed) => return Answer::Now(Err(closed)),
            Ok(Servers::One(dispatcher)) => dispatcher,
            Ok(Servers::Cluster(cluster)) => {
                return self.later(cluster.check(request, deadline, asking));
            }
        };
        let in_flight = match dispatcher.admit(request.is_refund()) {
            Ok(in_flight) => in_flight,
            Err(error) => return Answer::Now(Err(dispatcher.server().with_server(error))),
        };
        self.later(async move {
            let request = Arc::new(request);
            let submitted = Dispatcher::submit(Arc::clone(&request), in_flight, deadline);
            match submitted.await {
                Ok(found) => {
                    let decision = request.decision(&found);
                    answered(asking, &decision);
                    Ok(decision)
                }
                Err(error) => Err(dispatcher.server().with_server(error)),
            }
        })
    }

    fn forget(&self, charges: &[Charge<'_>]) -> Answer<()> {
        let denials = self.0.denials.as_ref();
        let resetting = denials.map(|denials| denials.resetting(charges));
        let keys: Vec<_> = charges
            .iter()
            .map(|charge| self.0.names.key_text(charge))
            .collect();
        let dispatcher = match self.0.servers() {
            Err(closed) => return Answer::Now(Err(closed)),
            Ok(Servers::One(dispatcher)) => dispatcher,
            Ok(Servers::Cluster(cluster)) => {
                let done = cluster.reset(keys);
                return Answer::Later(Box::pin(async move {
                    let _resetting = resetting;
                    done.await
                }));
            }
        };
        let in_flight = match dispatcher.admit(false) {
            Ok(in_flight) => in_flight,
            Err(error) => return Answer::Now(Err(dispatcher.server().with_server(error))),
        };
        let timeout = self.0.deadline;
        Answer::Later(Box::pin(async move {
            let (_resetting, _in_flight) = (resetting, in_flight);
            let deadline = Deadline::after(timeout);
            let server = dispatcher.server();
            let deleted = server.delete(keys, SendMode::Alone, deadline).await;
            deleted.map_err(|error| server.with_server(error))
        }))
    }

    fn later<T: 'static>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        Answer::Later(Box::pin(InRuntime::new(self.0.runtime.clone(), answer)))
    }
}

impl Lender for RedisStore {
    fn leases(&self) -> &Leases {
        &self.0.leases
    }

    fn ask(&self, check: &Check<'_>) -> Answer<Decision> {
        self.decide(check)
    }

    fn tasks(&self) -> &Tasks {
        self.0.fallback.tasks()
    }

    fn deadline(&self) -> Duration {
        self.0.deadline
    }
}

impl Store for RedisStore {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        lease::check(self, check)
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        match finished(lease::reset(self, charges, self.forget(charges))) {
            Answer::Later(answer) => self.later(answer),
            now => now,
        }
    }

    fn storage_key(&self, charge: &Charge<'_>) -> Option<String> {
        Some(self.0.names.key_text(charge))
    }

    fn fallback(&self) -> Option<Fallback> {
        Some(self.0.fallback.clone())
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("names", &self.names)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
