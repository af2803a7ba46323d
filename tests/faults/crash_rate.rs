//! A crash at a high rate, through the whole layer: requests come whether or not earlier ones
//! were answered, while the server is killed and comes back.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tower::{Layer, Service, service_fn};
use tower_throttle::{Decision, Key, OnStoreFailure, Policy, RateLimitLayer, RequestHead};

use crate::support::RedisServer;
use crate::{
    checker::{self, Elsewhere, Promise, Window},
    ledger::{By, Outcome, Recorder},
    load::HUNG,
    outage::{self, BURST, PER_S, RESUMES, quota},
    rig,
    row::{Row, or_long},
};

const KEYS: u64 = 2_000;

/// A request has only the caller's number.
fn key(head: &RequestHead<'_>) -> Option<Key> {
    let number = head.headers().get("x-caller")?;
    Some(Key::from(number.to_str().ok()?))
}

/// Sends requests at this rate until `over`. Late ones are sent at once.
async fn open_loop<S, B>(service: S, per_s: u64, recorder: &Recorder, over: impl Future)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Send,
{
    let mut asking = JoinSet::new();
    let started = Instant::now();
    let mut asked = 0_u64;
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            _ = &mut over => break,
            _ = ticks.tick() => {}
        }
        let due = (started.elapsed().as_secs_f64() * per_s as f64) as u64;
        while asked < due {
            // A prime step: each caller has one request before any has a second.
            let caller = asked * 7_919 % KEYS;
            asked += 1;
            let (mut service, recorder) = (service.clone(), recorder.clone());
            asking.spawn(async move {
                let request = Request::builder().header("x-caller", caller);
                let request = request.body(()).expect("a request");
                let pending = recorder.open(caller as u32, 1);
                let Ok(response) = service.call(request).await;
                let decision = response.extensions().get::<Decision>().cloned();
                pending.answered(&Ok(decision.expect("the layer tells what it decided")));
            });
        }
        while asking.try_join_next().is_some() {}
    }
    let rest = async { while asking.join_next().await.is_some() {} };
    if timeout(HUNG, rest).await.is_err() {
        // Each request that is left is recorded as unanswered.
        asking.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_decided_while_the_server_crashes_and_returns() {
    let mut row = Row::start("crash rate");
    let mut server = RedisServer::start();
    let store = rig::store(rig::CALL, &server.url());
    let layer = RateLimitLayer::builder()
        .store(store.clone())
        .policy(Policy::new("rate", quota()).key(key))
        .decision_in_extensions()
        .on_store_failure(OnStoreFailure::local())
        .build()
        .expect("a layer");
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    rig::ready(&rig::limiter(store, quota())).await;

    let per_s = or_long(500, 20_000);
    let phase = Duration::from_secs(or_long(1, 20));
    let recorder = Recorder::new(0);
    let mut when = None;
    let faults = async {
        sleep(phase).await;
        let from_us = recorder.now_us();
        server.kill();
        sleep(phase).await;
        server.run();
        let to_us = recorder.now_us();
        when = Some(Window { from_us, to_us });
        sleep(phase).await;
        let resumed = tokio::task::spawn_blocking({
            let recorder = recorder.clone();
            move || outage::load_until_resumed(&recorder, to_us, Duration::ZERO)
        });
        resumed.await.expect("the store resumes");
    };
    let started = Instant::now();
    open_loop(layer.layer(inner), per_s, &recorder, faults).await;
    let took = started.elapsed();
    let when = when.expect("it was killed");

    let ledger = recorder.ledger();
    checker::nothing_broke(&ledger).expect("I7");
    row.figure("requests in a second", per_s);
    row.figure("requests", ledger.len());
    let wanted = took.as_secs_f64() * per_s as f64;
    let missing = 1.0 - ledger.len() as f64 / wanted;
    row.claim("the rate", Duration::from_millis(100), 0.1, missing);
    let undecided = rig::count(&ledger, |outcome| !outcome.is_decision());
    assert_eq!(undecided, 0, "{:?}", checker::outcomes(&ledger));
    let promise = Promise {
        burst: BURST,
        per_s: PER_S as f64,
        losses: vec![when],
        elsewhere: Elsewhere::Local {
            burst: BURST,
            per_s: PER_S as f64,
            outages: 1,
        },
    };
    checker::admitted(&ledger, &promise).expect("I1");
    let by_itself = rig::count(&ledger, |outcome| {
        matches!(
            outcome,
            Outcome::Allowed(By::Local) | Outcome::Denied(By::Local)
        )
    });
    assert!(by_itself > 0, "the process decides meanwhile");
    row.figure("decided by the process", by_itself);
    let resumed = checker::resumed(&ledger, when.to_us).expect("I6");
    row.took("resumed after", resumed, RESUMES);

    let phases = [
        ("healthy", 0..when.from_us),
        ("killed", when.from_us..when.to_us),
        ("back", when.to_us..u64::MAX),
    ];
    for (name, times) in phases {
        let its = ledger.iter().filter(|entry| times.contains(&entry.sent_us));
        let its: Vec<_> = its.cloned().collect();
        let mut part = row.part(name);
        part.answered(&its);
        part.tell(its.len() as u64);
    }
    row.tell(1);
}
