//! What operators see of callers, on a store in memory and on a simulated Redis.

mod callers;
mod documents;
mod failures;
mod peeks;
mod resets;

use std::{sync::Arc, time::Duration};

use http::Request;

use super::{CallerState, Inspect};
use crate::{
    Buckets, FixedWindow, Limiter, LimiterBuilder, ManualClock, MemoryStore, Policy,
    RateLimitLayer, RateLimitLayerBuilder, RedisStore, RequestHead,
    control::{Caller, Control},
    key::{self, PeerAddr},
    store::Store,
    testing::SimulatedRedis,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Makes a change of the document.
async fn made<T, E: std::fmt::Debug>(change: impl IntoFuture<Output = Result<T, E>>) -> T {
    change.await.expect("it is made")
}

/// A store, its document, and its time.
struct World {
    store: Arc<dyn Store>,
    control: Control,
    clock: Option<Arc<ManualClock>>,
    redis: SimulatedRedis,
}

impl World {
    fn in_memory() -> Self {
        let clock = Arc::new(ManualClock::new());
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self {
            control: store.control(),
            store: Arc::new(store),
            clock: Some(clock),
            redis: SimulatedRedis::new(),
        }
    }

    fn in_redis() -> Self {
        let redis = SimulatedRedis::new();
        let store = RedisStore::builder().secret("s").simulated(&redis);
        let store = store.expect("a store");
        Self {
            control: store.control(),
            store: Arc::new(store),
            clock: None,
            redis,
        }
    }

    async fn advance(&self, by: Duration) {
        match &self.clock {
            Some(clock) => clock.advance(by),
            None => tokio::time::advance(by).await,
        }
    }

    fn limiter(&self, policies: impl IntoIterator<Item = Policy>) -> Limiter {
        let builder = Limiter::builder().store(Arc::clone(&self.store));
        let builder = builder.control(self.control.clone());
        let builder = policies.into_iter().fold(builder, LimiterBuilder::policy);
        builder.build().expect("valid")
    }

    fn layer(&self, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
        let builder = RateLimitLayer::builder().store(Arc::clone(&self.store));
        let builder = builder.control(self.control.clone());
        let builder = policies
            .into_iter()
            .fold(builder, RateLimitLayerBuilder::policy);
        builder.build().expect("valid")
    }
}

fn caller(parts: &[&str]) -> Caller {
    Caller::parse(parts).expect("a caller")
}

/// Looks a caller up, as an operator types it.
async fn look_up(inspect: Inspect, typed: &[&str], policy: Option<&str>) -> Vec<CallerState> {
    inspect.look_up(&caller(typed), policy).await
}

fn plan() -> Policy {
    Policy::new("plan", FixedWindow::per_hour(10)).key(key::header("x-api-key"))
}

/// Returns the buckets of a request with these fields.
fn buckets(layer: &RateLimitLayer, fields: &[(&str, &str)]) -> Buckets {
    let mut request = Request::get("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let peer = PeerAddr("203.0.113.9:1".parse().expect("an address"));
    let request = request.extension(peer).body(()).expect("a request");
    layer.buckets(&RequestHead::from(&request)).expect("keys")
}

/// Charges the buckets of a request.
async fn debit(buckets: &Buckets, units: u64) {
    drop(buckets.debit(units).await.expect("a decision"));
}

#[track_caller]
fn only(states: Vec<CallerState>) -> CallerState {
    let [state] = <[CallerState; 1]>::try_from(states).expect("one policy");
    state
}

/// Returns the state of a caller under the only policy.
async fn seen(inspect: Inspect, typed: &[&str]) -> CallerState {
    only(look_up(inspect, typed, None).await)
}

/// Returns what is left of the caller's bucket.
async fn left(inspect: Inspect, typed: &[&str], policy: Option<&str>) -> u64 {
    remaining(look_up(inspect, typed, policy).await)
}

/// Returns what is left of the only bucket.
#[track_caller]
fn remaining(states: Vec<CallerState>) -> u64 {
    let bucket = only(states).bucket.expect("a bucket");
    bucket.decision.remaining()
}
