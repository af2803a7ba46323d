//! The limit on calls.

use std::time::Duration;

use tower_throttle_admin::{Access, Who};

use super::{App, Asked, STATUS, get, post};

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
    app.ask(&get("/admin"))
        .await
        .assert_is(429, "too-many-calls");
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(use_up(&app, &get(STATUS)).await, 10);
}

/// A visitor without the right token uses up the calls of its own address only.
#[tokio::test]
async fn strangers_do_not_use_up_the_calls_of_those_with_access() {
    let app = App::bearer();
    let session = app.log_in().await;
    assert_eq!(use_up(&app, &get("/admin")).await, 59);
    app.ask(&get(STATUS)).await.assert_is(429, "too-many-calls");
    let login = post("/admin/session", r#"{"token":"guess"}"#);
    app.ask(&login).await.assert_is(429, "too-many-calls");
    // The same address: with a session, and with the token.
    let with_session = get(STATUS).with("cookie", &session);
    assert_eq!(use_up(&app, &with_session).await, 60);
    let with_token = get(STATUS).bearer(super::SECRET);
    assert_eq!(use_up(&app, &with_token).await, 60);
    // Another address, and another session.
    let elsewhere = get("/admin").peer("203.0.113.9:1");
    assert_eq!(use_up(&app, &elsewhere).await, 60);
    app.clock.advance(Duration::from_millis(100));
    let session = app.log_in().await;
    let with_session = get(STATUS).with("cookie", &session);
    assert_eq!(use_up(&app, &with_session).await, 60);
}

#[tokio::test]
async fn each_user_of_a_check_has_calls_of_its_own() {
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
        app.ask(&foreign).await.assert_is(403, "cross-origin");
    }
    app.ask(&get("/admin")).await.assert_done();
}
