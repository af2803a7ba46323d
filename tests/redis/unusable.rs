//! Servers that answer and cannot decide: the errors quote them, from the first check on.

use crate::{prelude::*, support::sentinel::Sentinel};

/// Returns the errors of the first checks, which are more than the breaker lets through.
async fn first_errors(url: &str) -> Vec<String> {
    let limiter = denying(store_at(url), TokenBucket::per_hour(3));
    let mut errors = Vec::new();
    for _ in 0..8 {
        let error = limiter.check("ann").await.expect_err("it cannot decide");
        errors.push(error.to_string());
    }
    errors
}

#[tokio::test]
async fn a_server_without_a_command_is_quoted() {
    for command in ["EVALSHA", "EVAL"] {
        let server = RedisServer::with(&["--rename-command", command, ""]);
        for error in first_errors(&server.url()).await {
            eprintln!("{command}: {error}");
            let is_quoted = error.contains("ERR unknown command") && error.contains(command);
            assert!(is_quoted, "{command}: {error}");
        }
    }
}

#[tokio::test]
async fn a_sentinel_is_quoted() {
    let server = RedisServer::start();
    let sentinel = Sentinel::start(server.port(), 1);
    let url = format!("redis://127.0.0.1:{}/", sentinel.port);
    for error in first_errors(&url).await {
        eprintln!("{error}");
        assert!(error.contains("ERR unknown command"), "{error}");
    }
}
