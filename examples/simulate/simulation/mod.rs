//! Nodes as in production, except for the server and the network.

mod tally;
mod timer;
mod traffic;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::runtime::Builder;
use tower_throttle::{
    Limiter, OnStoreFailure, Policy, RedisStore, TokenBucket, testing::SimulatedRedis,
};

pub(crate) use self::{
    tally::{Limit, Tally},
    traffic::Callers,
};
use self::{
    timer::Timer,
    traffic::{Random, Request, Traffic},
};

/// What may be decided without the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Nothing.
    Exact,
    /// Cached denials: the default.
    Cached,
    /// Cached denials and leases.
    Leased,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) nodes: u32,
    pub(crate) callers: Callers,
    /// All requests in a second, without a flood.
    pub(crate) rate: f64,
    pub(crate) limit: Limit,
    pub(crate) mode: Mode,
    /// The delay to the server. Each node is up to a fifth nearer or farther.
    pub(crate) each_way: Duration,
    /// Every second node, from the first one on, is this many times nearer.
    pub(crate) nearer: u32,
    /// The time of a call at the server, and of each decision in it.
    pub(crate) call_takes: Duration,
    pub(crate) decision_takes: Duration,
    pub(crate) lasts: Duration,
    /// Traffic grows until then. That time does not count as load of the server.
    pub(crate) warm_after: Duration,
}

/// The results. Rates are from the time after it was warm.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) requests_per_s: f64,
    pub(crate) calls_per_s: f64,
    pub(crate) decisions_per_s: f64,
    pub(crate) checks_per_call: f64,
    /// The part of the server's one core that was busy.
    pub(crate) busy: f64,
}

impl Scene {
    /// 50 requests a second for each node, and a millisecond to the server and back. Each
    /// caller may send 10 requests a second. With more nodes it ends sooner.
    pub(crate) const fn new(seed: u64, nodes: u32) -> Self {
        let lasts_ms = match nodes {
            0..=1 => 60_000,
            2..=10 => 20_000,
            11..=100 => 10_000,
            101.. => 3_000,
        };
        Self {
            seed,
            nodes,
            callers: Callers::Uniform { callers: 1 },
            rate: 50.0 * nodes as f64,
            limit: Limit {
                rate: 10,
                burst: 20,
            },
            mode: Mode::Exact,
            each_way: Duration::from_micros(500),
            nearer: 1,
            // A server with more connections needs more time for a call.
            call_takes: Duration::from_micros(if nodes < 1_000 { 8 } else { 12 }),
            decision_takes: Duration::from_nanos(3_200),
            lasts: Duration::from_millis(lasts_ms),
            warm_after: Duration::from_millis(500),
        }
    }

    /// Runs the scene. The same scene has the same results.
    pub(crate) fn play(&self) -> Outcome {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            // So that all tasks that are ready run before time moves on.
            .event_interval(u32::MAX)
            .build()
            .expect("a runtime");
        runtime.block_on(self.run())
    }

    async fn run(&self) -> Outcome {
        let timer = Timer::new();
        let waiting = timer.clone();
        let redis = SimulatedRedis::new().with_timer(move |at| waiting.clone().until(at));
        redis.set_service_time(self.call_takes, self.decision_takes);
        let nodes = self.nodes(&redis);
        let mut traffic = Traffic::new(
            self.seed,
            self.callers,
            self.nodes,
            self.rate,
            self.warm_after,
        );
        let (callers, rate) = (traffic.callers(), traffic.rate());
        let tally = Tally::new(self.limit, self.warm_after, callers, self.nodes);
        let tally = Arc::new(Mutex::new(tally));

        let cold = self.ask(&timer, &nodes, &mut traffic, &tally, self.warm_after);
        cold.await;
        let before = redis.served();
        let warm = self.ask(&timer, &nodes, &mut traffic, &tally, self.lasts);
        warm.await;
        let after = redis.served();
        timer.pass_until(self.lasts + PATIENCE).await;
        drop(nodes);
        // Waits for the replies in flight.
        timer.pass_until(self.lasts + 2 * PATIENCE).await;

        let seconds = (self.lasts - self.warm_after).as_secs_f64();
        let calls = (after.calls - before.calls) as f64;
        let mut all = lock(&tally);
        let empty = Tally::new(self.limit, self.warm_after, 0, 0);
        Outcome {
            tally: std::mem::replace(&mut *all, empty),
            requests_per_s: rate,
            calls_per_s: calls / seconds,
            decisions_per_s: (after.decisions - before.decisions) as f64 / seconds,
            checks_per_call: (after.checks - before.checks) as f64 / calls.max(1.0),
            busy: (after.busy - before.busy).as_secs_f64() / seconds,
        }
    }

    fn nodes(&self, redis: &SimulatedRedis) -> Vec<Limiter> {
        let mut random = Random(!self.seed);
        let quota = TokenBucket::per_second(self.limit.rate).burst(self.limit.burst);
        let policy = Policy::new("api", quota).on_store_failure(OnStoreFailure::Deny);
        let policy = match self.mode {
            Mode::Leased => policy.lease(),
            Mode::Exact | Mode::Cached => policy,
        };
        let node = |number| {
            let redis = redis.over_another_network();
            let each_way = self.each_way.mul_f64(0.8 + 0.4 * random.part());
            redis.set_delay(match number % 2 {
                0 => each_way / self.nearer,
                _ => each_way,
            });
            let mut store = RedisStore::builder();
            if self.mode == Mode::Exact {
                store = store.denial_cache_ttl(Duration::ZERO);
            }
            let store = store.simulated(&redis).expect("a store");
            Limiter::new(store, policy.clone())
        };
        (0..self.nodes).map(node).collect()
    }

    /// Sends the node's requests until `end`.
    async fn ask(
        &self,
        timer: &Timer,
        nodes: &[Limiter],
        traffic: &mut Traffic,
        tally: &Arc<Mutex<Tally>>,
        end: Duration,
    ) {
        // The first request after the end is dropped.
        for Request { at, node, caller } in traffic.take_while(|request| request.at < end) {
            timer.pass_until(at).await;
            lock(tally).asked(caller, node, at);
            let (limiter, tally) = (nodes[node as usize].clone(), Arc::clone(tally));
            let timer = timer.clone();
            tokio::spawn(async move {
                let answer = limiter.check(u64::from(caller)).await;
                let times = [at, timer.now()];
                lock(&tally).answered(caller, node, &answer, times);
            });
        }
        timer.pass_until(end).await;
    }
}

/// Longer than any check takes.
const PATIENCE: Duration = Duration::from_millis(500);

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().expect("nothing panics while it holds it")
}
