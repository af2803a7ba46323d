//! The layer for clients beside `tower::limit::RateLimit`, where there is always room: what the layer
//! costs a call, in memory.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::http::{Request, Response};
use tokio::{runtime::Runtime, task::JoinSet};
use tower::{
    Service, ServiceBuilder, ServiceExt,
    limit::{RateLimit, rate::Rate as TowerRate},
    service_fn,
};
use tower_throttle::{Limiter, MemoryStore, Pause, Policy};
use tower_throttle_client::OutboundLayer;

use crate::{
    callers::Callers,
    measured::{Measured, SHORT, in_turns},
    on_threads::{at_once, round},
    peers::Rate,
    table::{Row, Table},
};

/// So many calls are under way at a time.
const TASKS: usize = 64;

type Call = Request<()>;
type Answer = Ready<Result<Response<()>, Infallible>>;

fn client()
-> impl Service<Call, Response = Response<()>, Error = Infallible, Future = Answer> + Clone {
    service_fn(|_: Call| ready(Ok(Response::new(()))))
}

fn call() -> Call {
    let request = Request::get("http://partner.example/orders").body(());
    request.expect("a request")
}

pub fn rows(table: &mut Table) {
    let runtime = Runtime::new().expect("a runtime");
    let _context = runtime.enter();
    let limiter = Limiter::builder()
        .store(MemoryStore::new())
        .policy(Policy::new("pace", Rate::Vast.in_memory()))
        .policy(Policy::new("pauses", Pause));
    let layer = OutboundLayer::new(limiter.build().expect("a limiter")).expect("a layer");
    let ours = ServiceBuilder::new().layer(layer).service(client());
    let rate = TowerRate::new(u64::MAX, Duration::from_secs(1));

    // It cannot be cloned, so it is behind a lock, which nobody else takes.
    let alone = Arc::new(Mutex::new(RateLimit::new(client(), rate)));
    let rival = move |_| {
        let mut alone = alone.lock().expect("no panic");
        drop(at_once(async { alone.ready().await?.call(call()).await }));
    };
    let one = ours.clone();
    let one = move |_| drop(at_once(one.clone().oneshot(call())));
    let callers = Callers::Each(1);
    let [mine, beside] = in_turns([&|| round(SHORT, 1, &callers, one.clone()), &|| {
        round(SHORT, 1, &callers, rival.clone())
    }]);
    table.add(Row::speed(
        "calls to a partner: one at a time",
        mine,
        ("tower RateLimit", beside),
    ));

    // To share it, Tower's needs a buffer.
    let buffered = ServiceBuilder::new()
        .buffer::<Call>(TASKS)
        .rate_limit(u64::MAX, Duration::from_secs(1));
    let buffered = buffered.service(client());
    let [mine, beside] = in_turns([&|| runtime.block_on(shared(ours.clone())), &|| {
        runtime.block_on(shared(buffered.clone()))
    }]);
    let name = format!("calls to a partner: {TASKS} tasks share a client");
    table.add(Row::speed(name, mine, ("tower Buffer, RateLimit", beside)).at_least(1.0));
}

/// Lets tasks call as often as they can.
async fn shared<S>(client: S) -> Measured
where
    S: Service<Call> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    S::Response: Send,
{
    let (started, end) = (Instant::now(), Instant::now() + SHORT);
    let tasks: JoinSet<Vec<Duration>> = (0..TASKS)
        .map(|_| {
            let client = client.clone();
            async move {
                let mut times = Vec::new();
                while Instant::now() < end {
                    let began = Instant::now();
                    let _ = client.clone().oneshot(call()).await;
                    times.push(began.elapsed());
                    tokio::task::yield_now().await;
                }
                times
            }
        })
        .collect();
    let times = tasks.join_all().await.concat();
    Measured::new(started.elapsed(), times)
}
