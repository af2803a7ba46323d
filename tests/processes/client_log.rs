//! What this crate and its client log about connections.

use std::{collections::BTreeSet, sync::LazyLock};

use tracing_subscriber::filter::LevelFilter;

use crate::support::prelude::*;
use crate::support::{fake, log::Log};

const PASSWORD: &str = "hunter2";

static LOG: LazyLock<Log> = LazyLock::new(Log::default);

fn limiter(url: &str) -> Limiter {
    let store = hasty().connect(url).expect("a store");
    let policy = Policy::new("api", TokenBucket::per_second(10));
    Limiter::new(store, policy.on_store_failure(OnStoreFailure::Deny))
}

/// Replies to AUTH as a server whose AUTH was renamed. Returns its port, and how often it got a
/// password.
fn server_without_auth() -> (u16, Arc<AtomicUsize>) {
    let logins = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&logins);
    let port = fake::answer(move |_, words| {
        let name = words[0].to_ascii_uppercase();
        if name != b"AUTH" {
            return "+OK\r\n".to_owned();
        }
        counter.fetch_add(1, Ordering::Relaxed);
        let arguments = words[1..].iter();
        let arguments = arguments.map(|word| format!("'{}' ", String::from_utf8_lossy(word)));
        let arguments: String = arguments.collect();
        format!("-ERR unknown command 'AUTH', with args beginning with: {arguments}\r\n")
    });
    (port, logins)
}

pub(crate) async fn client_log() {
    // Also what the client logs.
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::DEBUG)
        .with_ansi(false)
        .with_writer(|| LOG.clone())
        .init();
    a_password_is_in_no_line_at_debug().await;
    a_store_that_is_dropped_while_it_logs_in_logs_no_password().await;
    each_reason_why_reconnecting_fails_is_said_once().await;
}

async fn a_password_is_in_no_line_at_debug() {
    let urls = [
        |port: u16| format!("redis://app:{PASSWORD}@127.0.0.1:{port}/"),
        |port: u16| format!("redis-cluster://app:{PASSWORD}@127.0.0.1:{port}/"),
        |port: u16| {
            format!(
                "redis-sentinel://127.0.0.1:{port}/?sentinelServiceName=main&sentinelPassword={PASSWORD}"
            )
        },
    ];
    let mut limiters = Vec::new();
    for url in urls {
        let (port, logins) = server_without_auth();
        let limiter = limiter(&url(port));
        for _ in 0..3 {
            let before = logins.load(Ordering::Relaxed);
            limiter.check("ann").await.expect_err("no connection");
            eventually("another login", || logins.load(Ordering::Relaxed) > before);
        }
        limiters.push(limiter);
    }
    let log = LOG.text();
    assert!(log.contains("DEBUG") && log.contains("fred"), "{log}");
    for line in log.lines() {
        assert!(!line.contains(PASSWORD), "{line}");
    }
}

async fn a_store_that_is_dropped_while_it_logs_in_logs_no_password() {
    let (port, logins) = server_without_auth();
    let url = format!("redis://app:{PASSWORD}@127.0.0.1:{port}/");
    for round in 0..300 {
        let before = logins.load(Ordering::Relaxed);
        let limiter = limiter(&url);
        // Until the reply has been sent.
        while logins.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
        for _ in 0..round % 30 {
            tokio::task::yield_now().await;
        }
        drop(limiter);
    }
    for line in LOG.text().lines() {
        assert!(!line.contains(PASSWORD), "{line}");
    }
}

/// Returns the lines of this crate about a server.
fn ours(port: u16, part: &str) -> Vec<String> {
    let parts = ["tower_throttle::store", &format!("127.0.0.1:{port}"), part];
    let log = LOG.text();
    let lines = log
        .lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)));
    lines.map(str::to_owned).collect()
}

/// Returns a line without its time.
fn reason(line: &str) -> &str {
    line.split_once(" ERROR ").expect("a level").1
}

async fn each_reason_why_reconnecting_fails_is_said_once() {
    let mut server = RedisServer::start();
    let port = server.port();
    let limiter = limiter(&server.url());
    eventually_async("a decision", || async {
        limiter.check("ann").await.is_ok()
    })
    .await;
    assert!(ours(port, "cannot connect").is_empty());
    server.kill();
    let say = |part: &'static str| eventually(part, || !ours(port, part).is_empty());
    say("Connection refused");

    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&attempts);
    fake::listen_at(port, move |_, stream| {
        counter.fetch_add(1, Ordering::Relaxed);
        let loading = "-LOADING Redis is loading the dataset in memory\r\n";
        fake::converse(stream, |_| Some(loading.into()));
    });
    say("LOADING");
    let before = attempts.load(Ordering::Relaxed);
    eventually("three more attempts", || {
        attempts.load(Ordering::Relaxed) >= before + 3
    });
    // A connection that was being made when the server died may have been reset: a reason of its own.
    let lines = ours(port, "cannot connect");
    let reasons: BTreeSet<_> = lines.iter().map(|line| reason(line)).collect();
    assert_eq!(reasons.len(), lines.len(), "{lines:#?}");
}
