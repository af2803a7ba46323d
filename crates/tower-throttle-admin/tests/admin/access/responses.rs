//! What every response has, and what is at no path.

use axum::Router;
use http::{Method, StatusCode};
use tower_throttle_admin::{Access, Admin};
use url::Url;

use super::{ANN, Answer, App, Asked, CHANGES, RESET, SECRET, STATUS, ask, form, get, login, post};
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
        post(RESET, " ".repeat(20_000)),
        get(STATUS).with("host", "evil.example"),
        get(STATUS).and("host", b"localhost"),
        get(STATUS).bearer("wrong"),
        get(STATUS).bearer(SECRET),
        form("/admin/session", "token=wrong"),
        form("/admin/session", format!("token={SECRET}")),
        login(SECRET),
        login("wrong"),
        login("wrong"),
        login("wrong"),
        login("wrong"),
    ] {
        for app in [&loopback, &bearer] {
            let answer = app.ask(&asked).await;
            assert_is_secure(&answer);
            seen.insert(answer.status.as_u16());
        }
    }
    let without_peer = Asked {
        peer: None,
        ..get(STATUS)
    };
    let answer = loopback.denies(&without_peer, 500, "no-peer").await;
    assert_is_secure(&answer);
    for status in [200, 204, 303, 400, 401, 403, 404, 405, 413, 415, 429] {
        assert!(seen.contains(&status), "no {status}: {seen:?}");
    }
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
    let post = post(STATUS, "{}");
    app.denies(&post, 405, "method-not-allowed").await;
    assert!(!app.was_reset());
}

/// What is read-only cannot be changed, by whatever path a change may come.
#[tokio::test]
async fn nothing_changes_unless_changes_are_allowed() {
    let app = App::reading();
    for action in CHANGES.split(' ').chain(["unknown"]) {
        let asked = post(&format!("/admin/api/v1/{action}"), ANN);
        app.denies(&asked, 403, "read-only").await;
    }
    assert!(!app.was_reset());
    app.allows(&post("/admin/api/v1/lookup", ANN)).await;
}

#[tokio::test]
async fn no_spelling_of_a_path_gets_around_the_guards() {
    let app = App::bearer();
    let targets = "/api/v1/reset api//v1/reset api/v1/reset/ ./api/v1/reset x/../api/v1/reset \
                   x/..;/api/v1/reset session/..;/api/v1/reset session/../api/v1/reset \
                   admin.css/../api/v1/reset admin.css;/api/v1/reset ;/api/v1/reset api;x/v1/reset \
                   %61pi/v1/reset api%2fv1%2freset api/v1/reset%00 api/v1/reset%00.css \
                   api/v1/reset;.css API/v1/reset api/v1/Reset api/v1/reset%20 api/v1/%72eset \
                   api/v1/%2e%2e/v1/reset api/v1/..%5creset api/v1/reset/admin.css";
    for (index, target) in targets.split(' ').enumerate() {
        let asked = post(&format!("/admin/{target}"), ANN);
        let asked = asked.peer(&format!("203.0.113.{index}:1"));
        // Without access, nothing but the login is there, however it is spelled.
        app.denies(&asked, 401, "no-token").await;
        // With access, the one path is there.
        let answer = app.denies(&asked.bearer(SECRET), 404, "not-found").await;
        assert!(!app.was_reset(), "{answer:?}");
    }
    let with_query = post("/admin/api/v1/reset?/admin.css", ANN);
    app.denies(&with_query, 401, "no-token").await;
    app.allows(&with_query.bearer(SECRET)).await;
    assert!(app.was_reset());
    // Read-only, the same.
    let app = App::reading();
    for path in ["lookup/../reset", "reset?/api/v1/lookup", "lookup;/reset"] {
        let asked = post(&format!("/admin/api/v1/{path}"), ANN);
        app.denies(&asked, 403, "read-only").await;
    }
    for path in ["api//v1/reset", "/api/v1/reset", "%61pi/v1/reset"] {
        let answer = app.ask(&post(&format!("/admin/{path}"), ANN)).await;
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
    /// Follows a link, or sends a form, below the page. Returns where that leads, and the answer.
    async fn open(&mut self, url: Url, body: Option<&str>) -> (Url, Answer) {
        let below = url.path().strip_prefix(self.outside);
        let below = below.unwrap_or_else(|| panic!("{url} is not of the page"));
        let target = match format!("{}{below}", self.inside) {
            empty if empty.is_empty() => "/".to_owned(),
            target => target,
        };
        let asked = body.map_or_else(|| get(&target), |body| form(&target, body));
        let answer = asked.with("cookie", &self.cookie).send(&self.router).await;
        if answer.fields.contains_key("set-cookie") {
            let cookie = answer.field("set-cookie");
            let (pair, _) = cookie.split_once(';').expect("attributes");
            pair.clone_into(&mut self.cookie);
        }
        if answer.status != StatusCode::SEE_OTHER {
            assert_eq!(answer.status, StatusCode::OK, "{url}: {answer:?}");
            return (url, answer);
        }
        let next = url.join(&answer.field("location")).expect("a URL");
        assert_eq!(next.origin(), url.origin());
        Box::pin(self.open(next, None)).await
    }
}

/// Returns where the link or the form of a page leads whose URL ends so.
fn link((url, page): &(Url, Answer), end: &str) -> Url {
    let (before, _) = page.body.split_once(&format!("{end}\"")).expect(end);
    let start = before.rsplit('"').next().expect("a quote");
    url.join(&format!("{start}{end}")).expect("a URL")
}

/// A proxy may show the page at another path than the process sees.
#[tokio::test]
async fn links_and_forms_stay_on_the_page_behind_a_proxy() {
    let limiter = Limiter::new(MemoryStore::new(), TokenBucket::per_second(1));
    let admin = || {
        let admin = Admin::new(&limiter).access(Access::bearer(SECRET).unwrap());
        admin.into_router()
    };
    let service = |path| Router::new().nest_service(path, admin());
    let nested = || Router::new().nest("/admin", admin());
    for (router, inside, outside, page) in [
        (admin(), "", "", "/"),
        (admin(), "", "/ops/limits", "/"),
        (service("/admin"), "/admin", "/admin", "/"),
        (service("/admin"), "/admin", "/admin", ""),
        (service("/a/b"), "/a/b", "/a/b", ""),
        (service("/admin"), "/admin", "", "/"),
        (service("/admin"), "/admin", "/ops/limits", "/"),
        (nested(), "/admin", "/admin", ""),
        (nested(), "/admin", "/ops/limits", "/session"),
    ] {
        let mut browser = Browser {
            router,
            inside,
            outside,
            cookie: String::new(),
        };
        let url = format!("https://example.com{outside}{page}");
        let login = browser.open(url.parse().expect("a URL"), None).await;
        let token = format!("token={SECRET}");
        let page = browser.open(link(&login, "session"), Some(&token)).await;
        for (page, file, kind) in [
            (&login, "admin.css", "text/css"),
            (&login, "admin.svg", "image/svg+xml"),
            (&page, "admin.css", "text/css"),
            (&page, "admin.js", "text/javascript"),
        ] {
            let (_, found) = browser.open(link(page, file), None).await;
            let is_so = found.field("content-type").starts_with(kind) && !found.body.is_empty();
            assert!(is_so, "{outside} {file}: {found:?}");
        }
        let asked = Some("caller=ann&policy=");
        let page = browser.open(link(&page, "/look-up"), asked).await;
        let page = browser.open(link(&page, "session-end"), Some("")).await;
        link(&page, "session");
    }
}
