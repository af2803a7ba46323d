//! The limit on calls.

use std::time::Duration;

use tower_throttle_admin::{Access, Who};

use super::{App, Asked, STATUS, get, login};

/// Asks until it is denied, and returns how often it was not.
async fn use_up(app: &App, asked: &Asked) -> usize {
    for call in 0..200 {
        let answer = app.ask(asked).await;
        if answer.code() == "too-many-calls" {
            assert_eq!(answer.field("retry-after"), "1");
            return call;
        }
    }
    panic!("it was never denied")
}

#[tokio::test]
async fn ten_calls_a_second_after_a_burst() {
    let app = App::loopback();
    assert_eq!(use_up(&app, &get(STATUS)).await, 60);
    app.denies(&get("/admin"), 429, "too-many-calls").await;
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(use_up(&app, &get(STATUS)).await, 10);
}

/// A visitor without the right token uses up the calls of its own address only.
#[tokio::test]
async fn strangers_do_not_use_up_the_calls_of_those_with_access() {
    let app = App::bearer();
    let session = app.log_in().await;
    assert_eq!(use_up(&app, &get("/admin")).await, 59);
    for asked in [get(STATUS), login("guess")] {
        app.denies(&asked, 429, "too-many-calls").await;
    }
    app.clock.advance(Duration::from_millis(100));
    let another = app.log_in().await;
    for asked in [
        // The same address: with a session, another one, and the token.
        get(STATUS).with("cookie", &session),
        get(STATUS).with("cookie", &another),
        get(STATUS).bearer(super::SECRET),
        // Another address.
        get("/admin").peer("203.0.113.9:1"),
    ] {
        assert_eq!(use_up(&app, &asked).await, 60);
    }
    // Each user of a check.
    let app = App::new(Access::check(|head| {
        Some(Who::new(head.headers().get("x-user")?.to_str().ok()?))
    }));
    for user in ["ann", "ben"] {
        let asked = get(STATUS).with("x-user", user);
        assert_eq!(use_up(&app, &asked).await, 60, "{user}");
    }
}

/// A site that loads the page a hundred times in the operator's browser does not keep the operator
/// out.
#[tokio::test]
async fn calls_of_other_sites_are_not_counted() {
    let app = App::loopback();
    let foreign = get("/admin").with("sec-fetch-site", "cross-site");
    for _ in 0..100 {
        app.denies(&foreign, 403, "cross-origin").await;
    }
    app.allows(&get("/admin")).await;
}
