//! What every response has, and what is at no path.

use axum::Router;
use http::{Method, StatusCode};
use tower_throttle_admin::{Access, Admin};

use super::{ANN, Answer, App, CHANGES, RESET, SECRET, STATUS, ask, form, get, post};
use crate::support::prelude::*;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'";

#[track_caller]
fn assert_is_secure(answer: &Answer) {
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("content-security-policy", POLICY),
    ] {
        assert_eq!(answer.field(name), value, "{name}");
    }
}

/// No page frames it, no cache keeps it, and no script runs but its own.
#[tokio::test]
async fn every_response_is_kept_from_frames_and_caches() {
    let (loopback, bearer) = (App::loopback(), App::bearer());
    let mut seen = std::collections::BTreeSet::new();
    for asked in [
        get("/admin"),
        get("/admin/admin.css"),
        get("/admin/admin.js"),
        get(STATUS),
        post(RESET, ANN),
        get("/admin/unknown"),
        get("/admin/api/v1/unknown"),
        get(RESET),
        ask(Method::DELETE, STATUS),
        ask(Method::HEAD, "/admin"),
        ask(Method::OPTIONS, STATUS),
        post(RESET, "{"),
        post(RESET, ANN).with("content-type", "text/plain"),
        post(RESET, &" ".repeat(20_000)),
        get(STATUS).with("host", "evil.example"),
        get(STATUS).and("host", b"localhost"),
        get(STATUS).bearer("wrong"),
        get(STATUS).bearer(SECRET),
        post("/admin/session", r#"{"token":"wrong"}"#),
        form("/admin/session", "token=wrong"),
        form("/admin/session", &format!("token={SECRET}")),
        post("/admin/session", &format!(r#"{{"token":"{SECRET}"}}"#)),
        post("/admin/session", r#"{"token":"wrong"}"#),
        post("/admin/session", r#"{"token":"wrong"}"#),
        post("/admin/session", r#"{"token":"wrong"}"#),
    ] {
        for app in [&loopback, &bearer] {
            let answer = app.ask(&asked).await;
            assert_is_secure(&answer);
            seen.insert(answer.status.as_u16());
        }
    }
    let mut without_peer = get(STATUS);
    without_peer.peer = None;
    let answer = loopback.ask(&without_peer).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_is_secure(&answer);
    for status in [200, 204, 303, 400, 401, 403, 404, 405, 413, 415, 429] {
        assert!(seen.contains(&status), "no {status}: {seen:?}");
    }
}

#[tokio::test]
async fn a_head_is_a_get_without_a_body() {
    let app = App::loopback();
    for target in ["/admin", "/admin/admin.js", STATUS] {
        let (head, get) = (
            app.ask(&ask(Method::HEAD, target)).await,
            app.ask(&get(target)).await,
        );
        assert_eq!(head.status, get.status);
        assert_eq!(head.field("content-type"), get.field("content-type"));
        assert!(head.body.is_empty() && !get.body.is_empty(), "{target}");
    }
    let app = App::bearer();
    let head = app.ask(&ask(Method::HEAD, "/admin")).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    let head = app.ask(&ask(Method::HEAD, STATUS)).await;
    assert_eq!(head.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    let app = App::loopback();
    for method in ["PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "PROPFIND"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for (target, allowed) in [
            ("/admin", "GET,HEAD"),
            (STATUS, "GET,HEAD"),
            (RESET, "POST"),
        ] {
            let answer = app.ask(&ask(method.clone(), target)).await;
            answer.assert_is(405, "method-not-allowed");
            assert_eq!(answer.field("allow"), allowed, "{method} {target}");
        }
        app.clock.advance(Duration::from_secs(6));
    }
    let answer = app.ask(&post(STATUS, "{}")).await;
    answer.assert_is(405, "method-not-allowed");
    assert!(!app.was_reset());
}

/// What is read-only cannot be changed, by whatever path a change may come.
#[tokio::test]
async fn nothing_changes_unless_changes_are_allowed() {
    let app = App::with(Access::loopback(), |admin| admin);
    for action in CHANGES.into_iter().chain(["unknown"]) {
        let answer = app
            .ask(&post(&format!("/admin/api/v1/{action}"), ANN))
            .await;
        answer.assert_is(403, "read-only");
    }
    assert!(!app.was_reset());
    let look_up = app.ask(&post("/admin/api/v1/lookup", ANN)).await;
    look_up.assert_done();
}

#[tokio::test]
async fn no_spelling_of_a_path_gets_around_the_guards() {
    let app = App::bearer();
    let targets = "/api/v1/reset api//v1/reset api/v1/reset/ ./api/v1/reset x/../api/v1/reset \
                   x/..;/api/v1/reset session/..;/api/v1/reset session/../api/v1/reset \
                   admin.css/../api/v1/reset admin.css;/api/v1/reset ;/api/v1/reset api;x/v1/reset \
                   %61pi/v1/reset api%2fv1%2freset api/v1/reset%00 api/v1/reset%00.css \
                   api/v1/reset;.css API/v1/reset api/v1/Reset api/v1/reset%20 api/v1/%72eset \
                   api/v1/%2e%2e/v1/reset api/v1/..%5creset api/v1/reset?/admin.css \
                   api/v1/reset/admin.css";
    for (index, target) in targets.split(' ').enumerate() {
        let target = &format!("/admin/{target}");
        // Without access, nothing but the login is there, however it is spelled.
        let peer = format!("203.0.113.{index}:1");
        let answer = app.ask(&post(target, ANN).peer(&peer)).await;
        answer.assert_is(401, "no-token");
        // With access, the one path is there.
        let answer = app.ask(&post(target, ANN).bearer(SECRET).peer(&peer)).await;
        match target.contains("?/") {
            true => answer.assert_done(),
            false => answer.assert_is(404, "not-found"),
        }
        if target.contains("?/") {
            assert!(app.was_reset());
        } else {
            assert!(!app.was_reset(), "{target}");
        }
    }
    // Read-only, the same.
    let app = App::with(Access::loopback(), |admin| admin);
    for target in [
        "/admin/api/v1/lookup/../reset",
        "/admin/api/v1/reset?/api/v1/lookup",
        "/admin/api/v1/lookup;/reset",
    ] {
        app.ask(&post(target, ANN))
            .await
            .assert_is(403, "read-only");
    }
    for target in [
        "/admin/api//v1/reset",
        "/admin//api/v1/reset",
        "/admin/%61pi/v1/reset",
    ] {
        let answer = app.ask(&post(target, ANN)).await;
        assert!(answer.status.is_client_error(), "{answer:?}");
    }
    assert!(!app.was_reset());
}

/// A browser that asks a proxy, which shows the page at another path.
struct Browser {
    router: Router,
    inside: &'static str,
    outside: &'static str,
    cookie: String,
}

impl Browser {
    /// Follows a link or a form of the page at `path`, below the page.
    async fn ask(&mut self, path: &str, form_body: Option<&str>) -> Answer {
        let below = path.strip_prefix(self.outside);
        let below = below.unwrap_or_else(|| panic!("{path} is not of the page"));
        let target = format!("{}{below}", self.inside);
        let asked = match form_body {
            Some(body) => form(&target, body),
            None => get(&target),
        };
        let answer = asked.with("cookie", &self.cookie).send(&self.router).await;
        if answer.fields.contains_key("set-cookie") {
            let cookie = answer.field("set-cookie");
            cookie
                .split(';')
                .next()
                .expect("a cookie")
                .clone_into(&mut self.cookie);
        }
        answer
    }

    /// Sends a form, and returns the page that is shown next.
    async fn send(&mut self, path: &str, body: &str) -> Answer {
        let answer = self.ask(path, Some(body)).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{answer:?}");
        let base = url::Url::parse(&format!("https://example.com{path}")).expect("a URL");
        let next = base.join(&answer.field("location")).expect("a URL");
        assert_eq!(next.origin(), base.origin());
        self.ask(next.path(), None).await
    }
}

/// A proxy may show the page at another path than the process sees.
#[tokio::test]
async fn forms_stay_on_the_page_behind_a_proxy() {
    let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_second(1));
    let admin = || {
        let admin = Admin::new(&limiter).access(Access::bearer(SECRET).unwrap());
        admin.into_router()
    };
    let service = || Router::new().nest_service("/admin", admin());
    let nested = Router::new().nest("/admin", admin());
    for (router, inside, outside) in [
        (admin(), "/", "/"),
        (admin(), "/", "/ops/limits/"),
        (service(), "/admin/", "/admin/"),
        (service(), "/admin/", "/"),
        (service(), "/admin/", "/ops/limits/"),
        (nested, "/admin/", "/ops/limits/"),
    ] {
        let mut browser = Browser {
            router,
            inside,
            outside,
            cookie: String::new(),
        };
        let session = format!("{outside}session");
        let page = browser.send(&session, &format!("token={SECRET}")).await;
        assert_eq!(page.status, StatusCode::OK, "{outside}: {page:?}");
        let log_out = r#"action="./session-end""#;
        assert!(page.body.contains(log_out), "{outside}: {page:?}");

        let page = browser.send(&format!("{outside}session-end"), "").await;
        assert_eq!(page.status, StatusCode::OK, "{outside}: {page:?}");
        assert!(page.body.contains(r#"action="./session""#), "{page:?}");
    }
}
