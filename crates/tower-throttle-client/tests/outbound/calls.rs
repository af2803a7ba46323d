//! One call: its key, its cost, its response or error.

use std::{error::Error, time::Duration};

use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::{task::JoinSet, time::Instant};
use tower::{Layer, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_throttle::{
    Concurrency, FixedWindow, Key, Limiter, MemoryStore, OnStoreFailure, Pause, Policy, RedisStore,
    TokenBucket, store::Store, testing::SimulatedRedis,
};
use tower_throttle_client::{OutboundBody, OutboundError, OutboundLayer};

use crate::partner::{Partner, TokioClock, answer};

const SECOND: Duration = Duration::from_secs(1);

fn limiter_on(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let pauses = Policy::new("pauses", Pause);
    let limiter = Limiter::builder().store(store).policy(pauses);
    let limiter = limiter.on_store_failure(OnStoreFailure::Deny);
    let limiter = policies
        .into_iter()
        .fold(limiter, |limiter, policy| limiter.policy(policy));
    limiter.build().unwrap()
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    limiter_on(store, policies)
}

pub(crate) fn layer(policies: impl IntoIterator<Item = Policy>) -> OutboundLayer {
    OutboundLayer::new(limiter(policies)).unwrap()
}

type Outcome = Result<Response<OutboundBody<String>>, OutboundError<&'static str>>;

async fn call(layer: &OutboundLayer, partner: &Partner, request: Request<()>) -> Outcome {
    let partner = partner.clone();
    let client = service_fn(move |request| {
        let response = partner.clone().call(request);
        async { Ok(response.await.unwrap()) }
    });
    layer.layer(client).oneshot(request).await
}

async fn status(layer: &OutboundLayer, partner: &Partner, uri: &str) -> u16 {
    let response = call(layer, partner, get(uri)).await;
    response.unwrap().status().as_u16()
}

async fn error(layer: &OutboundLayer, partner: &Partner, uri: &str) -> OutboundError<&'static str> {
    call(layer, partner, get(uri)).await.unwrap_err()
}

pub(crate) fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

fn agrees() -> Partner {
    Partner::new(|_| answer(200, &[]))
}

pub(crate) fn refuses(fields: &'static [(&str, &str)]) -> Partner {
    Partner::new(move |_| answer(429, fields))
}

#[tokio::test(start_paused = true)]
async fn the_key_is_the_host_and_port_of_a_request_or_what_a_closure_returns() {
    const SAME: [&str; 3] = [
        "http://one.example/a",
        "http://ONE.example/b",
        "http://me@one.example/",
    ];
    const OTHERS: [&str; 2] = ["http://one.example:81/", "http://two.example/"];

    let once = || [Policy::new("once", FixedWindow::per_day(1))];
    let layer = layer(once()).max_wait(Duration::ZERO);
    let partner = agrees();
    for (uri, is_first) in [
        (SAME[0], true),
        (SAME[1], false),
        (SAME[2], false),
        (OTHERS[0], true),
        (OTHERS[1], true),
    ] {
        let is_sent = call(&layer, &partner, get(uri)).await.is_ok();
        assert_eq!(is_sent, is_first, "{uri}");
    }
    let mut by_field = get("/a");
    by_field
        .headers_mut()
        .insert("host", "One.Example".parse().unwrap());
    let error = call(&layer, &partner, by_field).await.unwrap_err();
    assert!(error.is_no_room());
    assert!(
        call(&layer, &partner, get("/a")).await.is_ok(),
        "a request without a host"
    );

    let layer = self::layer(once()).max_wait(Duration::ZERO);
    let layer = layer.key(|head| Key::from(head.uri().path()));
    assert!(call(&layer, &partner, get(SAME[0])).await.is_ok());
    self::error(&layer, &partner, "http://two.example/a").await;
    assert!(call(&layer, &partner, get(SAME[1])).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_costs_what_its_request_says() {
    let layer = layer([Policy::new("bytes", FixedWindow::per_day(10))]).max_wait(Duration::ZERO);
    let layer = layer.cost(|head| head.uri().path().len() as u64);
    let partner = agrees();
    for (path, fits) in [
        ("/12345678", true),
        ("/1", false),
        ("/", true),
        ("/", false),
    ] {
        let is_sent = call(&layer, &partner, get(path)).await.is_ok();
        assert_eq!(is_sent, fits, "{path}");
    }
    assert_eq!(partner.calls(200).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_room_in_time_nothing_is_sent() {
    let layer =
        layer([Policy::new("pace", TokenBucket::per_minute(1).burst(1))]).max_wait(59 * SECOND);
    let partner = agrees();
    assert!(call(&layer, &partner, get("/")).await.is_ok());
    let begin = Instant::now();
    let error = call(&layer, &partner, get("/")).await.unwrap_err();
    assert!(begin.elapsed().is_zero() && error.is_no_room() && !error.is_paused());
    // Then it would wait for 59 s, and be in time.
    let wait = error.retry_after().unwrap();
    assert_eq!(wait, Duration::from_millis(990));
    assert_eq!(error.decision().unwrap().retry_after(), Some(wait));
    assert_eq!(
        error.to_string(),
        format!(
            "no room for a call in time; retry in {} ms",
            wait.as_millis()
        )
    );
    assert_eq!(partner.calls(200).len(), 1);
    let waits = layer.max_wait(60 * SECOND);
    assert!(call(&waits, &partner, get("/")).await.is_ok());
    assert_eq!(
        begin.elapsed(),
        59 * SECOND + wait + Duration::from_millis(10)
    );
}

/// Whatever a partner says, a pause ends: after it, one call finds out.
#[tokio::test(start_paused = true)]
async fn pauses_are_bounded_whatever_the_partner_says() {
    const YEAR: &str = "31536000";
    for (fields, expected) in [
        (&[("retry-after", YEAR)][..], 600 * SECOND),
        (
            &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")],
            600 * SECOND,
        ),
        (
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", YEAR)],
            600 * SECOND,
        ),
        (&[("retry-after", "7")], 7 * SECOND),
        (&[("retry-after", "0")], SECOND),
        (&[("retry-after", "-3")], SECOND),
        (&[], SECOND),
    ] {
        let layer = layer([]).max_wait(Duration::ZERO);
        let partner = refuses(fields);
        assert_eq!(status(&layer, &partner, "/").await, 429);
        let error = call(&layer, &partner, get("/")).await.unwrap_err();
        assert!(error.is_paused() && error.is_no_room(), "{fields:?}");
        let wait = error.retry_after().unwrap();
        assert!(
            wait.abs_diff(expected) < Duration::from_millis(10),
            "{fields:?}: {wait:?}"
        );
        assert!(
            error
                .to_string()
                .starts_with("calls pause, as the partner asked; retry in ")
        );
        assert_eq!(partner.calls(429).len(), 1);
    }
    let layer = layer([])
        .longest_pause(2 * SECOND)
        .default_pause(5 * SECOND);
    let partner = refuses(&[]);
    let begin = Instant::now();
    for _ in 0..10 {
        assert_eq!(status(&layer, &partner, "/").await, 429);
    }
    assert!(begin.elapsed() > 17 * SECOND, "one call in two seconds");
}

/// The partner refuses the first call while the others wait for the client.
#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_the_client_is_not_sent_in_a_pause() {
    let (layer, partner) = (layer([]), refuses(&[("retry-after", "60")]));
    let partners = partner.clone();
    let client = service_fn(move |request| partners.clone().call(request));
    let client = ConcurrencyLimitLayer::new(1).layer(client);
    for (max_wait, sent) in [(Duration::ZERO, 1), (600 * SECOND, 5)] {
        let client = layer.clone().max_wait(max_wait).layer(client.clone());
        let calls: JoinSet<_> = (0..4).map(|_| client.clone().oneshot(get("/"))).collect();
        calls.join_all().await;
        let calls = partner.calls(429);
        assert_eq!(calls.len(), sent);
        let mut gaps = calls.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.all(|gap| gap >= 60 * SECOND), "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_one_host_does_not_stop_another() {
    let layer = layer([]).max_wait(Duration::ZERO);
    let partner = refuses(&[("retry-after", "60")]);
    for uri in ["http://one.example/", "http://two.example/"] {
        assert_eq!(status(&layer, &partner, uri).await, 429);
        assert!(error(&layer, &partner, uri).await.is_paused());
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_passes_as_it_is() {
    let fields = [
        ("etag", "x"),
        ("ratelimit", "\"day\";r=9;t=30"),
        ("retry-after", "9"),
    ];
    let partner = Partner::new(move |_| {
        let mut response = answer(404, &fields);
        *response.body_mut() = "nothing".to_owned();
        response
    });
    let response = call(
        &layer([Policy::new("day", FixedWindow::per_day(9))]),
        &partner,
        get("/"),
    )
    .await
    .unwrap();
    let sent = answer(404, &fields);
    assert_eq!(
        (response.status(), response.headers()),
        (sent.status(), sent.headers())
    );
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_the_body_has_ended() {
    let layer = layer([Policy::new("connections", Concurrency::new(1))]).max_wait(Duration::ZERO);
    let partner = agrees();
    let first = call(&layer, &partner, get("/")).await.unwrap();
    assert!(error(&layer, &partner, "/").await.is_no_room());
    first.into_body().collect().await.unwrap();
    let second = call(&layer, &partner, get("/")).await.unwrap();
    assert!(error(&layer, &partner, "/").await.is_no_room());
    drop(second);
    assert_eq!(
        call(&layer, &partner, get("/"))
            .await
            .unwrap()
            .into_body()
            .into_inner(),
        ""
    );
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_client_and_of_the_store_are_told_apart() {
    let layer = layer([]);
    let fails = service_fn(|_: Request<()>| async {
        Err::<Response<String>, _>("no route".parse::<u8>().unwrap_err())
    });
    let error = layer.layer(fails).oneshot(get("/")).await.unwrap_err();
    assert!(!error.is_no_room() && !error.is_store_failure());
    assert_eq!(
        error.source().unwrap().to_string(),
        "invalid digit found in string"
    );
    assert!(error.into_client_error().is_some());

    let redis = SimulatedRedis::new();
    let store = RedisStore::builder().simulated(&redis).unwrap();
    let layer = OutboundLayer::new(limiter_on(store, [])).unwrap();
    redis.set_connected(false);
    let partner = agrees();
    let error = call(&layer, &partner, get("/")).await.unwrap_err();
    assert!(error.is_store_failure() && error.retry_after().is_none());
    assert_eq!(
        error.to_string(),
        "the store of the rate limit could not decide"
    );
    assert!(partner.calls(200).is_empty() && error.into_client_error().is_none());

    let limiter = Limiter::new(MemoryStore::new(), FixedWindow::per_day(1));
    let error = OutboundLayer::new(limiter).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("add `Policy::new(\"partner-pauses\", Pause)`")
    );
}
