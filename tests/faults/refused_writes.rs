//! A server that reads, and refuses to write.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::service_fn;
use tower_throttle::settle;

use crate::{
    prelude::*,
    support::{
        port::Port,
        refusals::{self, Refusal},
    },
};

const BAN: Duration = Duration::from_secs(600);
const STRIKES: u64 = 5;

/// A server with a user that may lose a right, and its URL.
fn server() -> (RedisServer, String) {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let user = "ACL SETUSER app on >pw ~tt?{* +@all".split(' ');
    server.command(&user.collect::<Vec<_>>());
    let url = format!("redis://app:pw@127.0.0.1:{}/", server.port());
    (server, url)
}

fn limiter(url: &str, choice: OnStoreFailure, policies: &[Policy]) -> Limiter {
    let store = patient().denial_cache_ttl(Duration::ZERO).connect(url);
    let builder = Limiter::builder().store(store.expect("a store"));
    let policies = policies.iter().cloned();
    let builder = policies.fold(builder, |builder, policy| builder.policy(policy));
    let limiter = builder.on_store_failure(choice).build();
    limiter.expect("a limiter")
}

fn bans() -> Policy {
    Policy::new("bans", Penalty::after(STRIKES).lasting(BAN))
}

fn pauses() -> Policy {
    Policy::new("pauses", Pause)
}

/// A policy of each kind that writes when it admits.
fn writing() -> [Policy; 6] {
    [
        Policy::new("token bucket", TokenBucket::per_hour(100)),
        Policy::new("leaky bucket", LeakyBucket::per_hour(100).queue(10)),
        Policy::new("fixed window", FixedWindow::per_hour(100)),
        Policy::new("sliding window", SlidingWindow::per_hour(100)),
        Policy::new("sliding log", SlidingLog::per_hour(100)),
        Policy::new("permits", Concurrency::new(100)),
    ]
}

/// Requests of one caller, each of which is a strike. Returns how many were admitted.
async fn bad_requests(limiter: &Limiter, caller: &str, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        let found = limiter.check(caller).await;
        if found.is_ok_and(|found| found.is_allowed()) {
            admitted += 1;
            let _ = limiter.strike(caller, 1).await;
        }
    }
    admitted
}

async fn stops(limiter: &Limiter, caller: &str, policy: &str) -> bool {
    let found = limiter.check(caller).await;
    found.is_ok_and(|found| found.denied_by().any(|denied| denied.name() == policy))
}

/// Under `Deny`, nothing passes that would write. A penalty alone admits what comes before its first
/// strike is refused, and a pause alone goes on, as it only reads.
async fn denies(refusal: &Refusal, server: &RedisServer, url: &str) -> Option<usize> {
    let with = |policies: &[Policy]| limiter(url, OnStoreFailure::Deny, policies);
    let alone: Vec<_> = writing().map(|policy| with(&[policy])).into();
    let beside: Vec<_> = writing()
        .map(|policy| with(&[policy, bans(), pauses()]))
        .into();
    let (penalty, pause) = (with(&[bans()]), with(&[pauses()]));
    let all: Vec<_> = (alone.iter().chain(&beside))
        .chain([&penalty, &pause])
        .collect();
    // Each has callers of its own.
    for (number, limiter) in (0_u64..).zip(&all) {
        let permit = limiter.acquire(number, Duration::ZERO).await;
        assert!(permit.expect("a decision").is_allowed());
    }
    if !refusal.begin(server) {
        refusal.end(server);
        return None;
    }
    for limiter in alone.iter().chain(&beside) {
        let permit = limiter.acquire("ann", Duration::ZERO).await;
        assert!(permit.is_err(), "{refusal:?}: {permit:?}");
    }
    let admitted = bad_requests(&penalty, "ann", 100).await;
    assert!(admitted <= 1, "{refusal:?}: {admitted} of 100");
    // Nor any other caller: the server would not store its strikes. Meanwhile the breaker lets
    // calls probe it.
    for caller in 0..15_u64 {
        let found = penalty.check(caller).await;
        assert!(found.is_err(), "{refusal:?}: {caller}: {found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let found = pause.check("partner").await.expect("a decision");
    assert_eq!((found.is_allowed(), found.source()), (true, Source::Store));
    refusal.end(server);
    for (number, limiter) in (1_000_u64..).zip(&all) {
        wait::until_async("a server that writes", async || {
            let permit = limiter.acquire(number, Duration::ZERO).await;
            permit.is_ok_and(|permit| permit.is_allowed())
        })
        .await;
    }
    Some(admitted)
}

/// Whatever policies do while the store fails: bans, pauses and strikes of an outage hold here at once,
/// and everywhere when the server writes again.
async fn joins(refusal: &Refusal, choice: OnStoreFailure) {
    for policies in [
        vec![bans(), pauses()],
        vec![
            Policy::new("api", TokenBucket::per_second(1_000)),
            bans(),
            pauses(),
        ],
    ] {
        let (server, url) = server();
        let [here, there] = [(); 2].map(|()| limiter(&url, choice, &policies));
        for limiter in [&here, &there] {
            rig::ready(limiter).await;
        }
        // The server knows of one strike.
        let _ = there.strike("struck", 1).await.expect("a strike");
        assert!(refusal.begin(&server));
        here.ban("banned", BAN).await.expect_err("a refusal");
        here.pause("paused", BAN).await.expect_err("a refusal");
        assert!(stops(&here, "banned", "bans").await, "{refusal:?}");
        assert!(stops(&here, "paused", "pauses").await, "{refusal:?}");
        for _ in 1..STRIKES {
            let _ = here.strike("struck", 1).await;
        }
        refusal.end(&server);
        for limiter in [&here, &there] {
            for (caller, policy) in [("struck", "bans"), ("banned", "bans"), ("paused", "pauses")] {
                let what = format!("{refusal:?}, {choice:?}: {caller}");
                wait::until_async(&what, async || stops(limiter, caller, policy).await).await;
            }
        }
        for caller in ["struck", "banned", "paused"] {
            here.reset(caller).await.expect("a reset");
            for limiter in [&here, &there] {
                assert!(!stops(limiter, caller, "bans").await, "{caller}");
                assert!(!stops(limiter, caller, "pauses").await, "{caller}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_to_write_does_not_decide_what_would_write() {
    let unused = Port::claim();
    for refusal in refusals::all(&unused) {
        let mut row = Row::start(format!("refused writes {}", refusal.word));
        // A server of its own each time, so that a full disk of one is no concern of the next.
        let (server, url) = server();
        let Some(admitted) = denies(&refusal, &server, &url).await else {
            row.figure("not refused", "by this version");
            row.tell(1);
            continue;
        };
        row.figure("bad requests admitted", format!("{admitted} of 100"));
        row.tell(1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bans_pauses_and_strikes_outlast_a_server_that_refuses_to_write() {
    let unused = Port::claim();
    for refusal in refusals::all(&unused) {
        if refusal.word == "NOREPLICAS" && !RedisServer::holds_scripts_to_min_replicas() {
            continue;
        }
        for choice in [
            OnStoreFailure::Deny,
            OnStoreFailure::local(),
            OnStoreFailure::Allow,
        ] {
            let row = Row::start(format!("kept bans {} {choice:?}", refusal.word));
            joins(&refusal, choice).await;
            row.tell(1);
        }
    }
}

/// What requests held before the server refused stays used. What they are settled with meanwhile is
/// not sent again, and strikes among it are kept.
async fn settles(refusal: &Refusal, choice: OnStoreFailure) {
    let (server, url) = server();
    let held = Policy::new("tokens", FixedWindow::per_day(100)).hold_for(BAN);
    let tokens = limiter(&url, choice, &[held]);
    let [here, there] = [(); 2].map(|()| {
        let store = patient().denial_cache_ttl(Duration::ZERO).connect(&url);
        let bans = bans().shared().settle_by(settle::status([401]));
        let builder = RateLimitLayer::builder().store(store.expect("a store"));
        let layer = builder.policy(bans).on_store_failure(choice).build();
        layer.expect("a layer")
    });
    let reserve = async |units| tokens.reserve("ann", units).await;
    let [settled, dropped] = [reserve(20).await, reserve(20).await];
    let settled = settled.expect("units");
    let working = Arc::new(AtomicU64::new(0));
    let (gate, _) = tokio::sync::watch::channel(false);
    let responses = (0..STRIKES).map(|_| {
        let (opened, working) = (gate.subscribe(), Arc::clone(&working));
        let unauthorized = service_fn(move |_: Request<Full<Bytes>>| {
            let mut opened = opened.clone();
            working.fetch_add(1, Ordering::Relaxed);
            async move {
                opened.wait_for(|is_open| *is_open).await.expect("a gate");
                let mut response = Response::new(Full::<Bytes>::default());
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(here.layer(unauthorized).oneshot(plain()))
    });
    let responses: Vec<_> = responses.collect();
    wait::until_async("requests in their handlers", async || {
        working.load(Ordering::Relaxed) == STRIKES
    })
    .await;

    assert!(refusal.begin(&server));
    settled.settle(5).await.expect_err("a refusal");
    drop(dropped);
    gate.send_replace(true);
    for response in responses {
        let response = response.await.expect("a task").expect("a response");
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }
    let meanwhile = reserve(1).await.map(|found| found.decision().source());
    match matches!(choice, OnStoreFailure::Deny) {
        true => drop(meanwhile.expect_err("nothing that would write")),
        false => assert_eq!(meanwhile.expect("a decision"), Source::Local),
    }

    refusal.end(&server);
    wait::until_async("all that was held", async || {
        let found = tokens.peek("ann").await;
        found.is_ok_and(|found| {
            found.source() == Source::Store
                && found
                    .policies()
                    .next()
                    .is_some_and(|policy| policy.remaining() == 60)
        })
    })
    .await;
    for layer in [&here, &there] {
        let what = format!("{refusal:?}, {choice:?}: strikes of responses");
        wait::until_async(&what, async || {
            let buckets = layer.buckets(&RequestHead::from(&plain())).expect("keys");
            buckets.peek().await.is_ok_and(|found| !found.is_allowed())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_settled_while_a_server_refuses_to_write_is_charged_as_held_and_struck() {
    let unused = Port::claim();
    for refusal in refusals::all(&unused) {
        if refusal.word == "NOREPLICAS" && !RedisServer::holds_scripts_to_min_replicas() {
            continue;
        }
        for choice in [OnStoreFailure::Deny, OnStoreFailure::local()] {
            let row = Row::start(format!("settled {} {choice:?}", refusal.word));
            settles(&refusal, choice).await;
            row.tell(1);
        }
    }
}
