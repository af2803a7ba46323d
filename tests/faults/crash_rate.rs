//! A crash at a high rate, through the whole layer: requests come whether or not earlier ones
//! were answered, while the server is killed and comes back.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tower::{Layer, Service, service_fn};
use tower_throttle::{
    Decision, Key, OnStoreFailure, Policy, RateLimitLayer, RequestHead, TokenBucket,
};

use crate::support::RedisServer;
use crate::{
    checker::{self, Elsewhere, Latency, Promise, Window},
    figures::{ms, or_long, tell},
    ledger::{By, Outcome, Recorder},
    machine,
    outage::RESUMES,
    rig,
};

const KEYS: u64 = 2_000;
const BURST: u64 = 20;
const PER_S: u64 = 10;
/// A request that is not answered by then never will be.
const HUNG: Duration = Duration::from_secs(5);

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
async fn the_rate_holds_while_the_server_crashes_and_returns() {
    let _alone = rig::alone().await;
    let mut server = RedisServer::start();
    let store = rig::store(rig::CALL, &server.url());
    let quota = TokenBucket::per_second(PER_S).burst(BURST);
    let layer = RateLimitLayer::builder()
        .store(store.clone())
        .policy(Policy::new("rate", quota).key(key))
        .decision_in_extensions()
        .on_store_failure(OnStoreFailure::local())
        .build()
        .expect("a layer");
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    rig::ready(&rig::limiter(store, quota)).await;

    let per_s = or_long(1_000, 20_000);
    let phase = or_long(Duration::from_secs(2), Duration::from_secs(20));
    let recorder = Recorder::new(0);
    let stalls = machine::Sampler::start(&recorder);
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
    };
    let started = Instant::now();
    open_loop(layer.layer(inner), per_s, &recorder, faults).await;
    let took = started.elapsed();
    let stalls = stalls.stop();
    let when = when.expect("it was killed");

    let ledger = recorder.ledger();
    checker::nothing_broke(&ledger).expect("I7");
    let wanted = (took.as_secs_f64() * per_s as f64) as usize;
    assert!(
        ledger.len() * 10 >= wanted * 9,
        "{} of {wanted}",
        ledger.len()
    );
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
    assert!(
        by_itself > per_s,
        "the process decided meanwhile: {by_itself}"
    );
    let resumed = checker::resumed(&ledger, when.to_us, RESUMES).expect("I6");

    let phases = [
        ("healthy", 0..when.from_us),
        ("killed", when.from_us..when.to_us),
        ("back", when.to_us..u64::MAX),
    ];
    let mut figures = vec![
        ("requests in a second", per_s.to_string()),
        ("requests", ledger.len().to_string()),
        ("decided by the process", by_itself.to_string()),
        ("resumed after", ms(resumed)),
    ];
    // Short runs allow more time, because the machine may be busy.
    let busy = Latency {
        p999: Duration::from_millis(200),
        most: Duration::from_millis(500),
    };
    let in_time = or_long(busy, rig::IN_TIME);
    let (mut excused, mut longest_excused) = (0, Duration::ZERO);
    for (name, times) in phases {
        let its = ledger.iter().filter(|entry| times.contains(&entry.sent_us));
        let its: Vec<_> = its.cloned().collect();
        let judged = machine::answered(&its, in_time, &stalls);
        let judged = judged.unwrap_or_else(|broken| panic!("{name}: {broken}"));
        excused += judged.excused;
        longest_excused = longest_excused.max(judged.longest_excused);
        let (p999, most) = (judged.others.p999, judged.others.most);
        figures.push((name, format!("p99.9 {}, longest {}", ms(p999), ms(most))));
    }
    let stalled: u64 = stalls.iter().map(|stall| stall.lost_us).sum();
    figures.push(("excused by the machine", excused.to_string()));
    figures.push(("longest of these", ms(longest_excused)));
    figures.push(("it stood still for", ms(Duration::from_micros(stalled))));
    tell("crash rate", 1, &figures);
}
