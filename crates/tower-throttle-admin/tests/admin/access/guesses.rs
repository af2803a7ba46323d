//! Wrong tokens: how many are compared, of an address and of all together.

use std::time::Duration;

use http::StatusCode;

use super::{ANN, App, Asked, RESET, SECRET, STATUS, form, get, login, post};
use crate::logged;

const MINUTE: Duration = Duration::from_secs(60);
const ATTACKER: &str = "203.0.113.9:1";

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
async fn wrong_tokens_are_denied_after_five_a_minute() {
    let app = App::bearer();
    let guesses = [login("guess"), get(STATUS).bearer("guess")];
    for asked in guesses.iter().cycle().take(5) {
        let asked = asked.clone().peer(ATTACKER);
        app.denies(&asked, 401, "wrong-token").await;
    }
    // From now on even the right one says nothing, wherever it is presented.
    for asked in [
        login(SECRET),
        form("/admin/session", format!("token={SECRET}")),
        get(STATUS).bearer(SECRET),
        login("guess"),
    ] {
        let answer = app.ask(&asked.peer("203.0.113.9:2")).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
        assert_eq!(answer.field("retry-after"), "60");
        assert!(!answer.fields.contains_key("set-cookie"));
    }
    app.allows(&login(SECRET).peer("203.0.113.10:1")).await;

    let again = login(SECRET).peer(ATTACKER);
    app.clock.advance(MINUTE - Duration::from_secs(1));
    let answer = app.denies(&again, 429, "too-many-wrong-tokens").await;
    assert_eq!(answer.field("retry-after"), "1");
    app.clock.advance(Duration::from_secs(1));
    app.allows(&again).await;
}

#[tokio::test]
async fn strangers_together_have_300_guesses_a_minute() {
    let app = App::bearer();
    let session = app.log_in().await;
    assert_eq!(guess_from(&app, 0..70_000).await, 300);

    // An operator goes on with a session. The right token says nothing, wherever it is from.
    let with_session = post(RESET, ANN).with("cookie", &session);
    app.allows(&with_session).await;
    assert!(app.was_reset());
    for asked in [get(STATUS).bearer(SECRET), login(SECRET)] {
        let answer = app.denies(&asked, 429, "too-many-wrong-tokens").await;
        assert_eq!(answer.field("retry-after"), "60");
    }

    app.clock.advance(MINUTE);
    app.allows(&get(STATUS).bearer(SECRET)).await;
    assert_eq!(guess_from(&app, 0..1_000).await, 300);
}

/// Neither at the start of a minute, nor around it, and whatever others guess meanwhile.
#[tokio::test]
async fn no_minute_has_more_than_five_guesses_of_an_address() {
    let app = App::bearer();
    let mut compared = Vec::new();
    for second in 0..300 {
        assert_eq!(guess_from(&app, second * 4..(second + 1) * 4).await, 4);
        for _ in 0..2 {
            if is_compared(&app, ATTACKER).await {
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

/// A customer has a /64 at least, and all its addresses guess together. So do those of unknown peers.
#[tokio::test]
async fn addresses_of_one_network_guess_together() {
    let of_network = |address: u64| format!("[2001:db8:1:2::{address}]:1").parse().ok();
    let unknown = |_| None;
    for peer in [&of_network as &dyn Fn(u64) -> _, &unknown] {
        let app = App::bearer();
        let from = |token, peer| Asked {
            peer,
            ..login(token)
        };
        for guess in 0..5 {
            app.denies(&from("guess", peer(guess)), 401, "wrong-token")
                .await;
        }
        let right = from(SECRET, peer(9_999));
        app.denies(&right, 429, "too-many-wrong-tokens").await;
        app.allows(&login(SECRET).peer("[2001:db8:1:3::1]:1")).await;
    }
}

/// Behind a proxy, the one who guesses and the operator have one peer address.
#[tokio::test]
async fn wrong_tokens_leave_sessions_alone() {
    let app = App::bearer();
    let session = app.log_in().await;
    for _ in 0..20 {
        app.ask(&login("guess")).await;
    }
    app.denies(&login(SECRET), 429, "too-many-wrong-tokens")
        .await;
    // A token beside the session is not compared, so it says nothing either.
    let both = post(RESET, ANN).with("cookie", &session).bearer("guess");
    app.allows(&both).await;
    assert!(app.was_reset());
}

/// Programs send the token with each call.
#[tokio::test]
async fn right_tokens_do_not_count() {
    let app = App::bearer();
    for _ in 0..400 {
        app.allows(&get(STATUS).bearer(SECRET)).await;
        app.clock.advance(Duration::from_millis(100));
    }
    assert!(is_compared(&app, "127.0.0.1:1").await);
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
        assert!(is_compared(&app, ATTACKER).await);
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
