//! No key, secret or password is shown: not by `Debug`, not by an error, and not in a log line,
//! whatever fails.

use std::collections::BTreeSet;

use tower_throttle::RedisStore;
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::support::prelude::*;
use crate::support::{fake, log::Log, port::Port, web::layer_of};

const KEY: &str = "sk-live-7Qx9vLmZ";
const USER: &str = "ledger-app";
const PASSWORD: &str = "hunter2";
const SECRET: &str = "correct-horse";

#[track_caller]
fn assert_hides(what: &str) {
    for secret in [KEY, USER, PASSWORD, SECRET] {
        let as_numbers = format!("{:?}", secret.as_bytes());
        let as_numbers = as_numbers.trim_matches(['[', ']']);
        for part in [secret, as_numbers] {
            assert!(!what.contains(part), "{part} in {what}");
        }
    }
}

#[track_caller]
fn hidden(what: &impl std::fmt::Debug) {
    assert_hides(&format!("{what:?} {what:#?}"));
}

/// Asserts that an error hides all secrets. Returns its kind, wherever it happened.
fn show(error: &StoreError) -> String {
    hidden(error);
    let text = error.to_string();
    assert_hides(&text);
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        assert_hides(&format!("{error} {error:?}"));
        cause = error.source();
    }
    let of_a_server = text.split_once(": ");
    let of_a_server = of_a_server.filter(|(at, _)| at.contains("127.0.0.1:"));
    of_a_server.map_or(text.clone(), |(_, kind)| kind.to_owned())
}

fn store(address: &str, deadline: Duration) -> RedisStore {
    // Redis must make each decision.
    let builder = hasty().denial_cache_ttl(Duration::ZERO);
    let builder = builder.secret(SECRET).timeout(deadline);
    hidden(&builder);
    let url = format!("redis://{USER}:{PASSWORD}@{address}");
    let store = builder.connect(&url).expect("a store");
    hidden(&store);
    store
}

fn limiter(store: RedisStore, choice: OnStoreFailure) -> Limiter {
    let policy = Policy::new("api", TokenBucket::per_day(2)).on_store_failure(choice);
    hidden(&policy);
    let limiter = Limiter::new(store, policy);
    hidden(&limiter);
    limiter
}

pub(crate) async fn secrets() {
    whatever_fails_nothing_is_shown().await;
    nothing_public_shows_a_key_a_secret_or_a_password().await;
    the_head_of_a_request_shows_no_value();
}

async fn whatever_fails_nothing_is_shown() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let ours = Targets::new().with_target("tower_throttle", LevelFilter::TRACE);
    tracing_subscriber::registry()
        .with(lines.with_filter(ours))
        .init();

    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", USER, "on", "~*", "+@all"];
    server.command(&[&user[..], &[&format!(">{PASSWORD}")]].concat());
    let well = format!("127.0.0.1:{}/", server.port());
    let of_nobody = Port::claim();
    let unused = format!("127.0.0.1:{of_nobody}/");
    // The error contains what the server got: the password.
    let renamed = RedisServer::with(&["--rename-command", "AUTH", "LOGIN"]);
    let strange = format!("127.0.0.1:{}/", renamed.port());
    let long = DEADLINE;
    let instant = Duration::from_nanos(1);

    let lying = |reply: &'static str| {
        let port = fake::answer(move |_, _| reply);
        (format!("127.0.0.1:{port}/"), long)
    };
    let mut kinds = BTreeSet::new();
    for choice in [OnStoreFailure::Deny, OnStoreFailure::local()] {
        for (address, deadline) in [
            (well.clone(), instant),
            (unused.clone(), long),
            (strange.clone(), long),
            lying("-NOPERM this user has no permissions\r\n"),
            lying("-NOPERM User ledger-app has no permissions to run 'evalsha'\r\n"),
            lying("-ERR app hunter-x\r\n"),
            lying("-MOVED 3999 127.0.0.1:6381\r\n"),
            lying("+OK\r\n"),
            lying("*1\r\n:1\r\n"),
        ] {
            let limiter = limiter(store(&address, deadline), choice);
            for _ in 0..3 {
                match limiter.check(KEY).await {
                    Ok(decision) => hidden(&decision),
                    Err(error) => {
                        kinds.insert(show(&error));
                        let server = address.trim_end_matches('/');
                        assert!(error.to_string().starts_with(server), "{error}");
                    }
                }
                if let Ok(permit) = limiter.acquire(KEY, Duration::ZERO).await {
                    hidden(&permit);
                }
            }
        }
        let limiter = limiter(store(&well, long), choice);
        for _ in 0..3 {
            hidden(&limiter.check(KEY).await.expect("a decision"));
        }
        server.command(&["SET", &limiter.storage_keys(KEY)[0], "junk"]);
        kinds.insert(show(&limiter.check(KEY).await.expect_err("junk")));
        limiter.reset(KEY).await.expect("a reset");

        let held = Policy::new("held", Concurrency::new(2)).on_store_failure(choice);
        let held = Limiter::new(store(&well, long), held);
        let error = held.credit(KEY, 1).await.expect_err("units are held");
        kinds.insert(show(&error));
        let permit = held.acquire(KEY, Duration::ZERO).await.expect("a decision");
        hidden(&permit);
    }
    let flooded = patient().denial_cache_ttl(Duration::ZERO);
    let flooded = flooded.max_in_flight(1);
    let url = format!("redis://{USER}:{PASSWORD}@{well}");
    let flooded = flooded.connect(&url).expect("a store");
    let flooded = limiter(flooded, OnStoreFailure::Deny);
    let _ = flooded.check(KEY).await.expect("a decision");
    let checks = (0..50).map(|_| {
        let limiter = flooded.clone();
        tokio::spawn(async move { limiter.check(KEY).await })
    });
    for check in checks.collect::<Vec<_>>() {
        if let Err(error) = check.await.expect("no panic") {
            kinds.insert(show(&error));
        }
    }
    assert!(kinds.len() >= 7, "not every kind was seen: {kinds:#?}");

    let text = log.text();
    assert!(text.contains("tower_throttle::store"), "{text}");
    let unused = unused.trim_end_matches('/');
    for line in ["cannot connect to Redis", "rate-limit store unavailable"] {
        assert!(text.contains(&format!("{line} ({unused}: ")), "{text}");
    }
    assert_hides(&text);
}

async fn nothing_public_shows_a_key_a_secret_or_a_password() {
    hidden(&Key::from(KEY));
    hidden(&Key::from((KEY, PASSWORD)));
    for form in ["redis", "redis-cluster", "redis-sentinel"] {
        let query = match form {
            "redis-sentinel" => "?sentinelServiceName=main&sentinelPassword=correct-horse",
            _ => "",
        };
        let url = format!("{form}://{USER}:{PASSWORD}@127.0.0.1:1/{query}");
        let builder = hasty().secret(SECRET);
        hidden(&builder);
        let store = builder.connect(&url).expect("a store");
        hidden(&store);
        hidden(&Guarded::new(store.clone()));
        let limiter = Limiter::builder().store(store.clone());
        let limiter = limiter.policy(Policy::new("api", TokenBucket::per_day(1)));
        hidden(&limiter);
        hidden(&limiter.build().expect("a limiter"));
        let layer = RateLimitLayer::builder()
            .store(store)
            .partition_key_secret(SECRET.as_bytes())
            .policy(Policy::new("api", TokenBucket::per_day(1)).key(key::header("x-api-key")));
        hidden(&layer);
        let layer = layer.build().expect("a layer");
        hidden(&layer);
        hidden(&layer.layer(()));
    }
    denials_show_no_key();
    hidden(&Fallback::new());
    let bad = hasty().connect("redis-sentinel://app:a?hunter2&hunter2@one/");
    hidden(&bad.expect_err("a mistake"));
}

/// Asserts that neither the list of denied callers nor the ring of denials has anything of a
/// request.
fn denials_show_no_key() {
    let policy = Policy::new("api", TokenBucket::per_day(1)).key(key::header("x-api-key"));
    let (layer, _) = layer_of([policy]);
    for path in [SECRET, PASSWORD, KEY] {
        let uri = format!("https://app:{PASSWORD}@host/{path}?token={SECRET}");
        let request = http::Request::builder().method(PASSWORD).uri(uri);
        let request = request.header("x-api-key", KEY).extension(KEY).body(());
        let inner = tower::service_fn(async |_| Ok::<_, ()>(http::Response::new(String::new())));
        let response = layer.layer(inner).oneshot(request.expect("a request"));
        at_once(response).expect("a response");
        hidden(&layer);
        hidden(&layer.top_denied(20));
        hidden(&layer.recent_denials());
    }
    assert_eq!(layer.top_denied(20).total, 2);
    assert!(!layer.recent_denials().is_empty());
}

fn the_head_of_a_request_shows_no_value() {
    let request = http::Request::get(format!(
        "https://app:{PASSWORD}@host/reset/{SECRET}?token={SECRET}"
    ));
    let request = request.header("x-api-key", KEY).extension(KEY).body(());
    let request = request.expect("a request");
    let head = RequestHead::from(&request);
    hidden(&head);
    let shown = format!("{head:?}");
    for part in ["GET", "x-api-key"] {
        assert!(shown.contains(part), "{shown}");
    }
}
