//! Wrong tokens from many addresses.

use std::time::Duration;

use http::StatusCode;

use super::{ANN, App, RESET, SECRET, STATUS, get, post};
use crate::logged;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the address of a network of its own: an IPv6 /48 has 65,536 of them.
fn network(number: u32) -> String {
    let (high, low) = (number >> 16, number & 0xffff);
    format!("[2001:db8:{high:x}:{low:x}::1]:1")
}

/// Sends a wrong token, and returns whether it was compared with the secret.
async fn is_compared(app: &App, peer: &str) -> bool {
    let answer = app.ask(&get(STATUS).bearer("guess").peer(peer)).await;
    match answer.status {
        StatusCode::UNAUTHORIZED => answer.assert_is(401, "wrong-token"),
        _ => {
            answer.assert_is(429, "too-many-wrong-tokens");
            let wait: u64 = answer.field("retry-after").parse().expect("seconds");
            assert!((1..=60).contains(&wait), "{wait}");
        }
    }
    answer.status == StatusCode::UNAUTHORIZED
}

/// Sends a wrong token from each network, and returns how many were compared.
async fn guess_from(app: &App, networks: std::ops::Range<u32>) -> usize {
    let mut compared = 0;
    for number in networks {
        compared += usize::from(is_compared(app, &network(number)).await);
    }
    compared
}

#[tokio::test]
async fn strangers_together_have_300_guesses_a_minute() {
    let app = App::bearer();
    let session = app.log_in().await;
    assert_eq!(guess_from(&app, 0..70_000).await, 300);

    // An operator goes on with a session. The right token says nothing, wherever it is from.
    let with_session = post(RESET, ANN).with("cookie", &session);
    app.ask(&with_session).await.assert_done();
    assert!(app.was_reset());
    let login = post("/admin/session", &format!(r#"{{"token":"{SECRET}"}}"#));
    for asked in [get(STATUS).bearer(SECRET), login] {
        let answer = app.ask(&asked).await;
        answer.assert_is(429, "too-many-wrong-tokens");
        assert_eq!(answer.field("retry-after"), "60");
    }

    app.clock.advance(MINUTE);
    app.ask(&get(STATUS).bearer(SECRET)).await.assert_done();
    assert_eq!(guess_from(&app, 0..1_000).await, 300);
}

/// Whatever others have guessed.
#[tokio::test]
async fn one_more_address_has_five_guesses_a_minute() {
    let app = App::bearer();
    let mut compared = 0;
    for minute in 0..50 {
        let first = minute * 200;
        assert_eq!(guess_from(&app, first..first + 200).await, 200);
        for _ in 0..20 {
            compared += usize::from(is_compared(&app, "203.0.113.9:1").await);
        }
        assert_eq!(compared, 5 * (minute as usize + 1));
        app.clock.advance(MINUTE);
    }
}

/// Neither at the start of a minute, nor around it.
#[tokio::test]
async fn no_minute_has_more_than_five_guesses() {
    let app = App::bearer();
    let mut compared = Vec::new();
    for second in 0..300_u64 {
        for _ in 0..2 {
            if is_compared(&app, "203.0.113.9:1").await {
                compared.push(second);
            }
        }
        app.clock.advance(Duration::from_secs(1));
    }
    assert!(compared.len() >= 20, "{compared:?}");
    for six in compared.windows(6) {
        assert!(six[5] - six[0] >= 60, "{six:?}");
    }
}

/// Programs send the token with each call.
#[tokio::test]
async fn right_tokens_do_not_count() {
    let app = App::bearer();
    for _ in 0..100 {
        for _ in 0..10 {
            app.ask(&get(STATUS).bearer(SECRET)).await.assert_done();
        }
        app.clock.advance(Duration::from_millis(100));
        app.ask(&get("/admin")).await.assert_done();
        app.clock.advance(Duration::from_millis(900));
    }
}

#[tokio::test]
async fn used_up_guesses_are_logged_once_a_minute() {
    logged::start();
    let warnings = || {
        let text = logged::so_far();
        let lines = text.lines().filter(|line| line.contains("WARN"));
        let of_all = lines
            .clone()
            .filter(|line| line.contains("from all addresses"));
        (lines.count(), of_all.count())
    };
    let app = App::bearer();
    for _ in 0..10 {
        assert!(is_compared(&app, "203.0.113.9:1").await);
        app.clock.advance(Duration::from_secs(12));
    }
    assert_eq!(warnings(), (2, 0), "{}", logged::so_far());
    assert!(logged::so_far().contains("peer=203.0.113.9"));

    for second in 0..120 {
        guess_from(&app, second * 100..(second + 1) * 100).await;
        app.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(warnings(), (4, 2), "{}", logged::so_far());
}
