//! A simulated server: the rules of the memory store behind a network and a queue, in the
//! time of the Tokio runtime.

mod server;

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until, timeout_at},
};

use self::server::Server;
use crate::{
    Clock, ConfigError, RedisStore, RedisStoreBuilder, StoreError,
    error::StoreErrorKind,
    store::{
        StoreFuture,
        process::ProcessContext,
        redis::{
            client_reply::Reply,
            connection::Command,
            connection::ServerDouble,
            pool::Pool,
            reply::Integers,
            request::{ScriptCall, ScriptRequest},
        },
    },
    util::{detach::run_on, lock::lock},
};

/// A Redis that is simulated in this process: for tests of an application whose Redis is
/// slow, far away or down, and of many processes that share one.
///
/// [`RedisStoreBuilder::simulated`](crate::RedisStoreBuilder::simulated) makes a store on it.
/// Everything in that store is real (batches, the denial cache, leases, timeouts, the
/// breaker), except for its connections and the script. Instead, calls travel for as long as
/// this simulation sets, and wait for each other as at a server with one thread. The rules of
/// [`MemoryStore`](crate::MemoryStore) decide them. Time is that of the Tokio runtime, for
/// the stores, too: if it is paused, tests take no time, and each run is the same.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, RedisStore, Source, TokenBucket, testing::SimulatedRedis};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread()
/// #     .enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// // under #[tokio::test(start_paused = true)]
/// let redis = SimulatedRedis::new();
/// let store = RedisStore::builder().simulated(&redis)?;
/// let limiter = Limiter::new(store, TokenBucket::per_minute(2));
/// assert_eq!(limiter.check("ann").await?.source(), Source::Store);
///
/// redis.set_connected(false);
/// assert_eq!(limiter.check("ann").await?.source(), Source::Local);
///
/// // longer than the deadline of 50 ms, there and back
/// redis.set_connected(true);
/// redis.set_delay(Duration::from_millis(30));
/// assert_eq!(limiter.check("ann").await?.source(), Source::Local);
///
/// redis.set_delay(Duration::from_millis(2));
/// assert!(!limiter.check("ann").await?.is_allowed(), "the late one was charged");
/// assert_eq!(redis.served().calls, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// **Limits**: it does not prove the script, the client or Redis. It does not simulate bytes,
/// rights, memory, forgotten scripts, failovers and clusters.
///
/// Cloning shares the server and the network.
#[derive(Clone)]
pub struct SimulatedRedis {
    server: Arc<Mutex<Server>>,
    network: Arc<Mutex<Network>>,
    timer: Arc<Timer>,
}

/// The actions of a simulated server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Script calls.
    pub calls: u64,
    /// Checks in these calls.
    pub checks: u64,
    /// Buckets that were decided: fewer than checks if equal checks shared a call, more if
    /// checks have several policies.
    pub decisions: u64,
    /// The time in which it served.
    pub busy: Duration,
}

type Timer = dyn Fn(Instant) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

#[derive(Default)]
struct Network {
    delay: Duration,
    is_cut: bool,
}

impl SimulatedRedis {
    /// Returns a server without data that is connected and replies at once.
    #[must_use]
    pub fn new() -> Self {
        Self {
            server: Arc::new(Mutex::new(Server::new())),
            network: Arc::default(),
            timer: Arc::new(|until| Box::pin(sleep_until(until))),
        }
    }

    /// Returns the same server at the other end of another network: for another process.
    #[must_use]
    pub fn over_another_network(&self) -> Self {
        Self {
            network: Arc::default(),
            ..self.clone()
        }
    }

    /// Sets how a call on its way waits for an instant: for simulations that need finer timers.
    /// Default: [`tokio::time::sleep_until`], which is at most a millisecond late.
    #[must_use]
    pub fn with_timer<F>(self, timer: impl Fn(Instant) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self {
            timer: Arc::new(move |until| Box::pin(timer(until))),
            ..self
        }
    }

    /// Sets how long calls travel through this network, each way. Default: no time.
    pub fn set_delay(&self, each_way: Duration) {
        self.network().delay = each_way;
    }

    /// Connects or disconnects this network. While it is disconnected, checks fail at once,
    /// and calls on their way are lost.
    pub fn set_connected(&self, is_connected: bool) {
        self.network().is_cut = !is_connected;
    }

    /// Sets how long the server takes for each call, and in addition for each bucket in it.
    /// Meanwhile it serves no other call. Default: no time.
    pub fn set_service_time(&self, per_call: Duration, per_bucket: Duration) {
        let mut server = self.server();
        (server.call_takes, server.decision_takes) = (per_call, per_bucket);
    }

    /// Returns what the server has done so far, for all networks.
    #[must_use]
    pub fn served(&self) -> Served {
        self.server().served
    }

    /// Returns the clock and the random numbers of the next store: the same in each run. `clock`:
    /// the store's own.
    fn process(&self, clock: Option<Arc<dyn Clock>>) -> ProcessContext {
        let mut server = self.server();
        ProcessContext {
            is_the_stores_clock: clock.is_some(),
            clock: clock.unwrap_or_else(|| Arc::new(server.clock)),
            hash: server.hash(),
        }
    }

    /// Takes a call to the server and its reply back. A sent call arrives, even if its caller has
    /// left.
    fn travel<T: Send + 'static>(
        &self,
        deadline: Instant,
        serve: impl FnOnce(&mut Server) -> T + Send + 'static,
    ) -> StoreFuture<T> {
        let redis = self.clone();
        Box::pin(async move {
            let runtime = Handle::try_current().map_err(StoreError::not_sent)?;
            let Some(there) = redis.delay() else {
                return Err(StoreError::unavailable("there is no connection").not_connected());
            };
            let call = async move {
                (redis.timer)(Instant::now() + there).await;
                redis.delay()?;
                let (answer, done_at) = {
                    let mut server = redis.server();
                    (serve(&mut server), server.free_at)
                };
                let back = redis.delay()?;
                (redis.timer)(done_at + back).await;
                redis.delay()?;
                Some(answer)
            };
            let call = run_on(runtime, call);
            let lost = || StoreError::unavailable("the connection was lost");
            match timeout_at(deadline, call).await {
                Ok(answer) => answer.ok_or_else(lost),
                Err(_) => Err(StoreError::new(StoreErrorKind::Timeout)),
            }
        })
    }

    /// Returns the delay of one way; `None` while the network is disconnected.
    fn delay(&self) -> Option<Duration> {
        let network = self.network();
        (!network.is_cut).then_some(network.delay)
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        lock(&self.server)
    }

    fn network(&self) -> MutexGuard<'_, Network> {
        lock(&self.network)
    }
}

impl ServerDouble for SimulatedRedis {
    fn eval(&self, call: &ScriptCall<'_>, deadline: Instant) -> StoreFuture<Integers> {
        let checks = call.checks.iter();
        let checks: Vec<(ScriptRequest, u64)> = checks
            .map(|check| (check.request.clone(), check.times))
            .collect();
        let (nonce, now_us) = (call.nonce, call.now_us);
        let names = call.names.clone();
        self.travel(deadline, move |server| {
            server.decide(&checks, &names, nonce, now_us)
        })
    }

    fn send(&self, command: Command, deadline: Instant) -> StoreFuture<Reply> {
        self.travel(deadline, move |server| server.reply(command))
    }
}

impl RedisStoreBuilder {
    /// Connects to a server that is simulated in this process: for tests. See
    /// [`SimulatedRedis`](crate::testing::SimulatedRedis).
    ///
    /// # Errors
    ///
    /// Returns an error if a setting cannot be used, or if there is no Tokio runtime.
    pub fn simulated(self, redis: &SimulatedRedis) -> Result<RedisStore, ConfigError> {
        self.with_pool(
            |clock| redis.process(clock),
            |_| Pool::of_double(Box::new(redis.clone())),
        )
    }
}

impl Default for SimulatedRedis {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimulatedRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRedis")
            .field("served", &self.served())
            .finish_non_exhaustive()
    }
}
