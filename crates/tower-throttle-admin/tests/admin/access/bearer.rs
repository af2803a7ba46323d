//! Access with a secret: tokens and sessions. `guesses.rs` has the limits on wrong tokens.

use std::time::Duration;

use http::StatusCode;
use tower_throttle_admin::{Access, AccessError};

use super::{ANN, App, RESET, SECRET, STATUS, form, get, login, post};

#[tokio::test]
async fn the_token_gives_access() {
    let app = App::bearer();
    for asked in [
        get(STATUS),
        post(RESET, ANN),
        get("/admin/api/v1/unknown"),
        get("/admin/unknown"),
    ] {
        let wrong = asked.clone().bearer("wrong");
        for (asked, code) in [(asked, "no-token"), (wrong, "wrong-token")] {
            let answer = app.denies(&asked, 401, code).await;
            assert_eq!(answer.field("www-authenticate"), "Bearer");
        }
    }
    assert!(!app.was_reset());
    let app = App::bearer();
    let lower = get(STATUS).with("authorization", &format!("bearer  {SECRET} "));
    app.allows(&lower).await;
    app.allows(&post(RESET, ANN).bearer(SECRET)).await;
    assert!(app.was_reset());
}

/// A part of the secret is as wrong as anything else.
#[tokio::test]
async fn a_token_is_compared_as_a_whole() {
    let (cut, late) = (&SECRET[..27], &SECRET[1..]);
    let (longer, upper) = (format!("{SECRET}x"), SECRET.to_uppercase());
    let others = ["", "x", cut, late, &longer, &upper].map(str::to_owned);
    let changed = (0..SECRET.len()).map(|at| {
        let mut changed = SECRET.to_owned();
        changed.replace_range(at..=at, "~");
        changed
    });
    for wrong in changed.chain(others) {
        let app = App::bearer();
        let asked = get(STATUS).bearer(&wrong);
        app.denies(&asked, 401, "wrong-token").await;
        app.denies(&login(&wrong), 401, "wrong-token").await;
    }
    let app = App::bearer();
    let basic = get(STATUS).with("authorization", &format!("Basic {SECRET}"));
    app.denies(&basic, 401, "no-token").await;
    let twice = get(STATUS).bearer(SECRET).and("authorization", b"Bearer x");
    app.denies(&twice, 401, "no-token").await;
}

#[tokio::test]
async fn a_session_gives_access_for_twelve_hours_in_every_process() {
    let (app, another) = (App::bearer(), App::bearer());
    let session = app.log_in().await;
    let asked = get(STATUS).with("cookie", &session);
    app.allows(&post(RESET, ANN).with("cookie", &session)).await;
    assert!(app.was_reset());
    another.allows(&asked).await;
    let of_another_secret = App::new(Access::bearer("another-secret-of-this-test").unwrap());
    of_another_secret.denies(&asked, 401, "no-token").await;

    app.clock.advance(Duration::from_secs(12 * 3_600 - 1));
    app.allows(&asked).await;
    app.clock.advance(Duration::from_secs(1));
    app.denies(&asked, 401, "no-token").await;
    another.allows(&asked).await;
}

/// Another application on the host has received the cookie, and keeps it.
#[tokio::test]
async fn a_copy_of_the_cookie_is_of_no_use_after_a_logout() {
    let (app, other) = (App::bearer(), App::bearer());
    let session = app.log_in().await;
    let asked = get(STATUS).with("cookie", &session);
    let log_out = post("/admin/session-end", "");
    // Without the cookie, it ends no session.
    app.allows(&log_out).await;
    app.allows(&asked).await;
    let answer = app.allows(&log_out.with("cookie", &session)).await;
    // Without `Path`, it is for the folder of the request: /admin.
    let removed = "tower_throttle=; HttpOnly; SameSite=Strict; Secure; Max-Age=0";
    assert_eq!(answer.field("set-cookie"), removed);
    app.denies(&asked, 401, "no-token").await;
    // Other processes have not heard of it.
    other.allows(&asked).await;
}

#[tokio::test]
async fn a_login_that_is_none_is_malformed() {
    let app = App::bearer();
    let bodies = "|[]|{}|{'token':1}|{'token':'a','token':'b'}|{'token':'a','extra':1}|\
                  {'token':'a'} x|{'token':'\u{1}'}";
    for body in bodies.replace('\'', "\"").split('|') {
        let asked = post("/admin/session", body);
        app.denies(&asked, 400, "malformed").await;
    }
    let answer = app.ask(&form("/admin/session", "name=ann")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    // Without a secret there is nothing to log in with.
    let loopback = App::loopback();
    loopback.denies(&login(SECRET), 404, "not-found").await;
}

#[test]
fn a_secret_that_cannot_be_used_is_an_error() {
    let (long, short) = ("a".repeat(16), "a".repeat(15));
    for (secret, code) in [
        (&*long, ""),
        (&*short, "access-secret-too-short"),
        ("", "access-secret-too-short"),
        ("sixteen letters in it", "access-secret-text"),
        ("sixteen-letters-in-it\n", "access-secret-text"),
        ("sechzehn-Zeichen-für-uns", "access-secret-text"),
        ("sixteen-letters\0-in-it", "access-secret-text"),
    ] {
        let error = Access::bearer(secret).err();
        let found = error.as_ref().map_or("", AccessError::code);
        assert_eq!(found, code, "{secret:?}");
    }
    // Cargo sets these for each test.
    assert!(Access::bearer_env("CARGO_PKG_REPOSITORY").is_ok());
    let error = Access::bearer_env("CARGO_PKG_VERSION").unwrap_err();
    assert_eq!(error.code(), "access-secret-too-short");
    let error = Access::bearer_env("NO_SUCH_VARIABLE").unwrap_err();
    assert_eq!(error.code(), "access-variable");
    assert!(error.to_string().contains("NO_SUCH_VARIABLE"));
}
