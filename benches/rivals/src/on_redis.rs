//! Rounds of limiters on Redis.

use std::{
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::{HeaderValue, StatusCode};
use fred::{
    clients::{Client, Pool},
    interfaces::ClientLike,
    types::{Builder as ClientBuilder, config::Config},
};
use redis::aio::MultiplexedConnection;
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinSet, coop::consume_budget},
};
use tower::Layer;
use tower_throttle::{Policy, RateLimitLayer};

use crate::{
    ask::{Ask, Requests},
    callers::{Callers, api_keys},
    machine::cores,
    measured::{Measured, Used},
    peers::{self, Inner, Ours, Rate, inner},
    server::RedisServer,
};

/// More than any contender has connections, because the first request of each loads the script.
const WARM_UP: usize = 32;

/// A server, and a runtime beside it.
pub struct Stage {
    pub server: RedisServer,
    runtime: Runtime,
    api_keys: Arc<[HeaderValue]>,
}

/// What a round does.
#[derive(Clone)]
pub struct Work {
    pub length: Duration,
    pub in_flight: usize,
    pub callers: Callers,
}

impl Stage {
    /// Uses all cores but one, which is for Redis.
    pub fn new(module: Option<&Path>) -> Self {
        let threads = cores().saturating_sub(1).max(1);
        Self::on(Builder::new_multi_thread().worker_threads(threads), module)
    }

    pub fn on(runtime: &mut Builder, module: Option<&Path>) -> Self {
        Self {
            server: RedisServer::start(module),
            runtime: runtime.enable_all().build().expect("a runtime"),
            api_keys: api_keys(),
        }
    }

    /// Returns fred's client, with its default settings.
    pub fn client(&self) -> Client {
        self.connected(&self.clients())
    }

    /// Returns fred's client, with TCP_NODELAY.
    pub fn client_with_nodelay(&self) -> Client {
        let mut clients = self.clients();
        clients.with_connection_config(|connection| connection.tcp.nodelay = Some(true));
        self.connected(&clients)
    }

    fn connected(&self, clients: &ClientBuilder) -> Client {
        let client = clients.build().expect("a client");
        self.run(client.init()).expect("a connection");
        client
    }

    /// Returns redis-rs's connection, with its default settings.
    pub fn redis_rs(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.server.url()).expect("a URL");
        let connection = self.run(client.get_multiplexed_async_connection());
        connection.expect("a connection")
    }

    pub fn pool(&self, connections: usize) -> Pool {
        let pool = self.clients().build_pool(connections).expect("a pool");
        self.run(pool.init()).expect("connections");
        pool
    }

    fn clients(&self) -> ClientBuilder {
        ClientBuilder::from_config(Config::from_url(&self.server.url()).expect("a URL"))
    }

    pub fn ours(&self, ours: Ours) -> RateLimitLayer {
        let _runtime = self.runtime.enter();
        peers::on_redis(&self.server.url(), ours)
    }

    /// The default settings, with a changed policy.
    pub fn ours_with(&self, change: impl Fn(Policy) -> Policy) -> RateLimitLayer {
        let _runtime = self.runtime.enter();
        peers::on_redis_with(&self.server.url(), Ours::new(Rate::Ample), change)
    }

    /// Returns requests that this layer should admit.
    pub fn allowed<L: Layer<Inner>>(&self, layer: L) -> Requests<L::Service> {
        self.requests(layer, StatusCode::OK)
    }

    /// Returns requests that this layer should deny.
    pub fn denied<L: Layer<Inner>>(&self, layer: L) -> Requests<L::Service> {
        self.requests(layer, StatusCode::TOO_MANY_REQUESTS)
    }

    fn requests<L: Layer<Inner>>(&self, layer: L, status: StatusCode) -> Requests<L::Service> {
        Requests {
            service: layer.layer(inner()),
            status,
            api_keys: Arc::clone(&self.api_keys),
        }
    }

    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Makes one request of each of these callers, `in_flight` at a time.
    pub fn each(&self, in_flight: usize, callers: Range<usize>, ask: &impl Ask) {
        let mut workers = JoinSet::new();
        for worker in 0..in_flight {
            let (ask, callers) = (ask.clone(), callers.clone());
            let worker = async move {
                for caller in callers.skip(worker).step_by(in_flight) {
                    ask.ask(caller).await?;
                }
                Ok(())
            };
            workers.spawn_on(worker, self.runtime.handle());
        }
        self.run(all(workers));
    }

    /// Makes requests, always this many at a time.
    pub fn round(&self, work: &Work, ask: &impl Ask) -> Measured {
        let warm = self.run(async {
            for worker in 0..WARM_UP {
                ask.ask(work.callers.first(worker, WARM_UP)).await?;
            }
            Ok(())
        });
        warm.unwrap_or_else(wrong);
        let before = self.server.used();
        let mut measured = self.run(asking(work, ask));
        let (after, operations) = (self.server.used(), measured.operations());
        measured.redis = Used {
            calls: (after.calls - before.calls) / operations,
            commands: (after.commands - before.commands) / operations,
            cpu_us: (after.cpu_us - before.cpu_us) / operations,
        };
        measured
    }
}

async fn asking(work: &Work, ask: &impl Ask) -> Measured {
    let mut workers = JoinSet::new();
    let started = Instant::now();
    for worker in 0..work.in_flight {
        let (work, ask) = (work.clone(), ask.clone());
        workers.spawn(async move {
            let mut times = Vec::with_capacity((1 << 18) / work.in_flight);
            let mut at = work.callers.first(worker, work.in_flight);
            while started.elapsed() < work.length {
                let asked = Instant::now();
                ask.ask(at).await?;
                times.push(asked.elapsed());
                at = work.callers.next(at);
                // A request that does not wait must let others have their turn, as a server
                // does.
                consume_budget().await;
            }
            Ok(times)
        });
    }
    let times = all(workers).await;
    let took = started.elapsed();
    Measured::new(took, times.concat())
}

/// Returns the results of all workers, or ends the run.
async fn all<T: 'static>(mut workers: JoinSet<Result<T, String>>) -> Vec<T> {
    let mut brought = Vec::new();
    while let Some(worker) = workers.join_next().await {
        brought.push(worker.expect("a worker").unwrap_or_else(wrong));
    }
    brought
}

fn wrong<T>(answer: String) -> T {
    panic!("the answer was {answer}");
}
