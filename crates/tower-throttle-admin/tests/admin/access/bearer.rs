//! Access with a secret: tokens and sessions.

use std::time::Duration;

use http::{HeaderName, StatusCode};
use tower_throttle_admin::{Access, AccessError};

use super::{ANN, App, Asked, RESET, SECRET, STATUS, form, get, post};

fn login(token: &str) -> Asked {
    let body = serde_json::json!({ "token": token });
    post("/admin/session", &body.to_string())
}

/// The token of a form, encoded as browsers do.
fn login_form(token: &str) -> Asked {
    form("/admin/session", &format!("token={token}"))
}

#[tokio::test]
async fn the_token_gives_access() {
    let app = App::bearer();
    for asked in [
        get(STATUS),
        post(RESET, ANN),
        get("/admin/api/v1/unknown"),
        get("/admin/unknown"),
    ] {
        let answer = app.ask(&asked).await;
        answer.assert_is(401, "no-token");
        assert_eq!(answer.field("www-authenticate"), "Bearer");
        let wrong = app.ask(&asked.clone().bearer("wrong")).await;
        wrong.assert_is(401, "wrong-token");
        assert_eq!(wrong.field("www-authenticate"), "Bearer");
    }
    assert!(!app.was_reset());
    let app = App::bearer();
    app.ask(&get(STATUS).bearer(SECRET)).await.assert_done();
    let lower = get(STATUS).with("authorization", &format!("bearer  {SECRET} "));
    app.ask(&lower).await.assert_done();
    app.ask(&post(RESET, ANN).bearer(SECRET))
        .await
        .assert_done();
    assert!(app.was_reset());
}

/// A part of the secret is as wrong as anything else.
#[tokio::test]
async fn a_token_is_compared_as_a_whole() {
    let longer = format!("{SECRET}x");
    let upper = SECRET.to_uppercase();
    let spaced = SECRET.replace('-', " ");
    for wrong in [
        "",
        "x",
        &SECRET[1..],
        &SECRET[..27],
        &longer,
        &upper,
        &spaced,
    ] {
        let app = App::bearer();
        let asked = get(STATUS).bearer(wrong);
        app.ask(&asked).await.assert_is(401, "wrong-token");
        app.ask(&login(wrong)).await.assert_is(401, "wrong-token");
    }
    for at in 0..SECRET.len() {
        let app = App::bearer();
        let mut wrong = SECRET.to_owned();
        wrong.replace_range(at..=at, "~");
        app.ask(&login(&wrong)).await.assert_is(401, "wrong-token");
    }
    let basic = get(STATUS).with("authorization", &format!("Basic {SECRET}"));
    let app = App::bearer();
    app.ask(&basic).await.assert_is(401, "no-token");
    let twice = get(STATUS).bearer(SECRET).and("authorization", b"Bearer x");
    app.ask(&twice).await.assert_is(401, "no-token");
}

#[tokio::test]
async fn a_session_gives_access_for_twelve_hours_in_every_process() {
    let app = App::bearer();
    let answer = app.ask(&login(SECRET)).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let cookie = answer.field("set-cookie");
    let (session, attributes) = cookie.split_once("; ").unwrap();
    // Without `Path`, it is for the folder of the request: /admin.
    assert_eq!(
        attributes,
        "HttpOnly; SameSite=Strict; Secure; Max-Age=43200"
    );
    let with = |asked: Asked| asked.with("cookie", session);
    app.ask(&with(post(RESET, ANN))).await.assert_done();
    assert!(app.was_reset());

    let another = App::bearer();
    another.ask(&with(get(STATUS))).await.assert_done();
    let of_another_secret = App::new(Access::bearer("another-secret-of-this-test").unwrap());
    let answer = of_another_secret.ask(&with(get(STATUS))).await;
    answer.assert_is(401, "no-token");

    app.clock.advance(Duration::from_secs(12 * 3_600 - 1));
    app.ask(&with(get(STATUS))).await.assert_done();
    app.clock.advance(Duration::from_secs(1));
    app.ask(&with(get(STATUS))).await.assert_is(401, "no-token");
    another.ask(&with(get(STATUS))).await.assert_done();
}

#[tokio::test]
async fn a_forged_session_is_none() {
    let app = App::bearer();
    let session = app.log_in().await;
    let (_, value) = session.split_once('=').unwrap();
    let (end, mac) = value.split_once('.').unwrap();
    let later = end.parse::<u64>().unwrap() + 1;
    for forged in [
        format!("{later}.{mac}"),
        format!("{end}.{}", "0".repeat(64)),
        format!("{end}."),
        format!("9999999999999.{}", blake3::hash(b"9999999999999")),
        SECRET.to_owned(),
    ] {
        let asked = get(STATUS).with("cookie", &format!("tower_throttle={forged}"));
        app.ask(&asked).await.assert_is(401, "no-token");
    }
}

/// Any application on the same host can set a cookie of this name, for a path of its own or for all.
#[tokio::test]
async fn a_cookie_of_another_path_neither_opens_nor_shuts_the_page() {
    let app = App::bearer();
    let session = app.log_in().await;
    let foreign = "tower_throttle=1.2";
    let alone = get(STATUS).with("cookie", foreign);
    app.ask(&alone).await.assert_is(401, "no-token");
    let garbage = format!("=; ;;tower_throttle; a=\"b; {session}; tower_throttle=\u{e9}");
    let both = [
        format!("{session}; {foreign}"),
        format!("{foreign}; {session}"),
        garbage,
    ];
    for cookies in both {
        let asked = get(STATUS).and("cookie", cookies.as_bytes());
        app.ask(&asked).await.assert_done();
    }
    // HTTP/2 sends each in a field of its own.
    let fields = get(STATUS)
        .with("cookie", foreign)
        .and("cookie", session.as_bytes());
    app.ask(&fields).await.assert_done();
}

/// Another application on the host has received the cookie, and keeps it.
#[tokio::test]
async fn a_copy_of_the_cookie_is_of_no_use_after_a_logout() {
    let (app, other) = (App::bearer(), App::bearer());
    let session = app.log_in().await;
    let asked = get(STATUS).with("cookie", &session);
    app.ask(&asked).await.assert_done();
    // Without the cookie, nobody is logged out.
    app.ask(&post("/admin/session-end", "")).await.assert_done();
    app.ask(&asked).await.assert_done();
    let log_out = post("/admin/session-end", "").with("cookie", &session);
    let answer = app.ask(&log_out).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let removed = "tower_throttle=; HttpOnly; SameSite=Strict; Secure; Max-Age=0";
    assert_eq!(answer.field("set-cookie"), removed);
    app.ask(&asked).await.assert_is(401, "no-token");
    // Other processes have not heard of it.
    other.ask(&asked).await.assert_done();
}

#[tokio::test]
async fn a_login_that_is_none_is_malformed() {
    let app = App::bearer();
    for body in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"token":1}"#,
        r#"{"token":"a","token":"b"}"#,
        r#"{"token":"a","extra":1}"#,
        r#"{"token":"a"} x"#,
        "{\"token\":\"\u{1}\"}",
    ] {
        let answer = app.ask(&post("/admin/session", body)).await;
        answer.assert_is(400, "malformed");
    }
    let answer = app.ask(&form("/admin/session", "name=ann")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    // Without a secret there is nothing to log in with.
    let loopback = App::loopback();
    loopback
        .ask(&login(SECRET))
        .await
        .assert_is(404, "not-found");
}

#[tokio::test]
async fn wrong_tokens_are_denied_after_five_a_minute() {
    let app = App::bearer();
    let of = |asked: Asked, peer: &str| asked.peer(peer);
    let attacker = "203.0.113.9:1";
    for guess in 0..5 {
        let asked = match guess % 2 {
            0 => login(&format!("guess-{guess}")),
            _ => get(STATUS).bearer(&format!("guess-{guess}")),
        };
        app.ask(&of(asked, attacker))
            .await
            .assert_is(401, "wrong-token");
    }
    // From now on even the right one says nothing, wherever it is presented.
    for asked in [
        login(SECRET),
        login_form(SECRET),
        get(STATUS).bearer(SECRET),
        login("guess"),
    ] {
        let answer = app.ask(&of(asked, "203.0.113.9:2")).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
        assert_eq!(answer.field("retry-after"), "60");
        assert!(
            !answer
                .fields
                .contains_key(HeaderName::from_static("set-cookie"))
        );
    }
    let other = app.ask(&of(login(SECRET), "203.0.113.10:1")).await;
    other.assert_done();

    app.clock.advance(Duration::from_secs(59));
    let answer = app.ask(&of(login(SECRET), attacker)).await;
    answer.assert_is(429, "too-many-wrong-tokens");
    assert_eq!(answer.field("retry-after"), "1");
    app.clock.advance(Duration::from_secs(1));
    app.ask(&of(login(SECRET), attacker)).await.assert_done();
}

/// A customer has a /64 at least, and all its addresses guess together. So do those of unknown peers.
#[tokio::test]
async fn addresses_of_one_network_guess_together() {
    let network = |address: u64| format!("[2001:db8:1:2::{address}]:1").parse().ok();
    let unknown = |_| None;
    for peer in [&network as &dyn Fn(u64) -> _, &unknown] {
        let app = App::bearer();
        let ask = async |token, peer| {
            let mut asked = login(token);
            asked.peer = peer;
            app.ask(&asked).await
        };
        for guess in 0..5 {
            let answer = ask("guess", peer(guess)).await;
            answer.assert_is(401, "wrong-token");
        }
        let answer = ask(SECRET, peer(9_999)).await;
        answer.assert_is(429, "too-many-wrong-tokens");
        let other = "[2001:db8:1:3::1]:1".parse().ok();
        ask(SECRET, other).await.assert_done();
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
    app.ask(&login(SECRET))
        .await
        .assert_is(429, "too-many-wrong-tokens");
    let with_session = post(RESET, ANN).with("cookie", &session);
    app.ask(&with_session).await.assert_done();
    assert!(app.was_reset());
    // A token beside the session is not compared, so it says nothing either.
    let both = get(STATUS).with("cookie", &session).bearer("guess");
    app.ask(&both).await.assert_done();
}

#[test]
fn a_secret_that_cannot_be_used_is_an_error() {
    let code = |result: Result<Access, AccessError>| match result {
        Ok(_) => "none",
        Err(error) => error.code(),
    };
    assert_eq!(code(Access::bearer("")), "access-secret-too-short");
    assert_eq!(
        code(Access::bearer("a".repeat(15))),
        "access-secret-too-short"
    );
    assert_eq!(code(Access::bearer("a".repeat(16))), "none");
    for secret in [
        "sixteen letters in it",
        "sixteen-letters-in-it\n",
        "sechzehn-Zeichen-für-uns",
        "sixteen-letters\0-in-it",
    ] {
        assert_eq!(
            code(Access::bearer(secret)),
            "access-secret-text",
            "{secret:?}"
        );
    }
    // Cargo sets these for each test.
    assert_eq!(code(Access::bearer_env("CARGO_PKG_REPOSITORY")), "none");
    assert_eq!(
        code(Access::bearer_env("CARGO_PKG_VERSION")),
        "access-secret-too-short"
    );
    assert_eq!(
        code(Access::bearer_env("CARGO_PKG_DESCRIPTION")),
        "access-secret-text"
    );
    let unset = Access::bearer_env("TOWER_THROTTLE_NO_SUCH_VARIABLE");
    let error = unset.expect_err("it is not set");
    assert_eq!(error.code(), "access-variable");
    assert!(
        error
            .to_string()
            .contains("TOWER_THROTTLE_NO_SUCH_VARIABLE")
    );
}
