//! Other sites in the operator's browser.

use http::{Method, StatusCode};
use tower_http::cors::CorsLayer;

use super::{ANN, App, Asked, CHANGES, RESET, SECRET, STATUS, ask, form, get, login, post};

const EVIL: &str = "https://evil.example";
const OWN: &str = "http://localhost:3000";

/// The origin and the site that browsers state for a request of another site. `-`: what the request
/// states already; nothing: it has no such field. A page in a sandbox has the origin `null`.
const OTHER_SITES: [(&str, &str); 12] = [
    ("null", ""),
    ("", "cross-site"),
    (EVIL, "-"),
    ("http://localhost:3001", "-"),
    ("http://localhost", "-"),
    ("null", "cross-site"),
    ("null", "same-site"),
    (EVIL, "cross-site"),
    // Another port of this machine.
    ("-", "same-site"),
    ("http://localhost:3001", "same-site"),
    // What is the one, and not the other.
    (OWN, "cross-site"),
    (EVIL, "same-origin"),
];

fn stating(asked: Asked, name: &'static str, value: &str) -> Asked {
    match value {
        "-" => asked,
        "" => asked.without(name),
        value => asked.with(name, value),
    }
}

/// As a browser that opens a page in a tab.
fn in_a_tab(asked: Asked) -> Asked {
    asked
        .with("sec-fetch-mode", "navigate")
        .with("sec-fetch-dest", "document")
}

async fn assert_denies_other_sites(app: &App, asked: &Asked) {
    for (origin, site) in OTHER_SITES {
        let asked = stating(asked.clone(), "origin", origin);
        let asked = stating(asked, "sec-fetch-site", site);
        let answer = app.denies(&asked, 403, "cross-origin").await;
        assert!(!answer.fields.contains_key("set-cookie"));
    }
}

#[tokio::test]
async fn a_form_of_another_site_changes_nothing() {
    let app = App::loopback();
    for (target, body) in [
        (RESET, "caller=ann"),
        (RESET, ANN),
        ("/admin", "caller=ann"),
    ] {
        let asked = form(target, body);
        assert_denies_other_sites(&app, &asked).await;
        // Forms have two other types, too.
        for kind in ["text/plain", "multipart/form-data; boundary=x"] {
            let asked = asked.clone().with("content-type", kind);
            assert_denies_other_sites(&app, &asked).await;
        }
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn a_script_of_another_site_changes_nothing() {
    let app = App::loopback();
    assert_denies_other_sites(&app, &post(RESET, ANN)).await;
    // With the secret of the operator, and with a session.
    let bearer = App::bearer();
    let session = bearer.log_in().await;
    assert_denies_other_sites(&bearer, &post(RESET, ANN).bearer(SECRET)).await;
    let with_session = post(RESET, ANN).with("cookie", &session);
    assert_denies_other_sites(&bearer, &with_session).await;
    assert!(!app.was_reset() && !bearer.was_reset());
}

/// A form of the page itself has the origin `null`, as it sends no referrer. Only the browser's own
/// field tells it from a page in a sandbox.
#[tokio::test]
async fn the_page_itself_changes_things() {
    let program = post(RESET, ANN);
    let same_origin = || program.clone().with("sec-fetch-site", "same-origin");
    for asked in [
        program.clone(),
        program.clone().with("origin", "https://localhost:3000"),
        same_origin(),
        same_origin().with("origin", OWN),
        same_origin().with("origin", "null"),
    ] {
        let app = App::loopback();
        app.allows(&asked).await;
        assert!(app.was_reset());
    }
}

/// A browser of another site sends no other type without asking first, which it is not allowed to.
#[tokio::test]
async fn only_json_with_a_field_of_its_own_changes_anything() {
    let app = App::loopback();
    let own = post(RESET, ANN);
    let kinds = "text/plain|text/plain; application/json|application/x-www-form-urlencoded|\
                 multipart/form-data; boundary=x|application/json-patch+json|text/json|";
    let kinds = kinds
        .split('|')
        .map(|kind| own.clone().with("content-type", kind));
    let none = own.clone().without("content-type");
    let twice = own.clone().and("content-type", b"application/json");
    for asked in kinds.chain([none, twice]) {
        app.denies(&asked, 415, "content-type").await;
    }
    let values = ["", "0", "true", "1, 1"];
    let values = values.map(|value| own.clone().with("x-tower-throttle", value));
    let none = own.clone().without("x-tower-throttle");
    for asked in values.into_iter().chain([none]) {
        app.denies(&asked, 403, "no-custom-header").await;
    }
    assert!(!app.was_reset());
    let with_charset = own.with("content-type", "Application/JSON; charset=utf-8");
    app.allows(&with_charset).await;
}

/// No `GET` changes anything, so an image or a link of another site does not.
#[tokio::test]
async fn a_link_changes_nothing() {
    let app = App::loopback();
    for action in CHANGES.split(' ') {
        for method in [Method::GET, Method::HEAD] {
            let target = format!("/admin/api/v1/{action}?caller=ann&policy=once");
            let answer = app.ask(&ask(method, &target)).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{action}");
            assert_eq!(answer.field("allow"), "POST");
        }
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn another_site_can_open_the_page_in_a_tab_and_read_nothing() {
    let app = App::loopback();
    let link = get("/admin").with("sec-fetch-site", "cross-site");
    app.allows(&in_a_tab(link.clone())).await;
    for (mode, dest) in [
        ("navigate", "iframe"),
        ("navigate", "embed"),
        ("no-cors", "image"),
        ("no-cors", "document"),
        ("cors", "empty"),
    ] {
        let asked = link.clone().with("sec-fetch-mode", mode);
        let asked = asked.with("sec-fetch-dest", dest);
        app.denies(&asked, 403, "cross-origin").await;
    }
    for target in [STATUS, "/admin/api/v1/samples"] {
        assert_denies_other_sites(&app, &get(target)).await;
        assert_denies_other_sites(&app, &in_a_tab(get(target))).await;
    }
    // It was typed by the operator.
    app.allows(&get(STATUS).with("sec-fetch-site", "none"))
        .await;
}

#[tokio::test]
async fn a_preflight_allows_nothing() {
    for app in [App::loopback(), App::bearer()] {
        for target in [RESET, STATUS, "/admin/session", "/admin"] {
            let fields = "content-type,x-tower-throttle";
            let asked = ask(Method::OPTIONS, target)
                .with("origin", EVIL)
                .with("access-control-request-method", "POST")
                .with("access-control-request-headers", fields);
            let answer = app.ask(&asked).await;
            assert!(answer.status.is_client_error(), "{answer:?}");
            let of_cors = |name: &http::HeaderName| name.as_str().starts_with("access-control");
            assert!(!answer.fields.keys().any(of_cors), "{answer:?}");
        }
    }
}

/// An application may allow every site to ask, for all of its paths.
#[tokio::test]
async fn cors_of_the_application_opens_nothing() {
    let app = App::loopback();
    let open = app.router.clone().layer(CorsLayer::very_permissive());
    for asked in [post(RESET, ANN), get(STATUS), get("/admin")] {
        let old_browser = asked.with("origin", EVIL);
        let answer = old_browser.send(&open).await;
        answer.assert_is(403, "cross-origin");
        assert_eq!(answer.field("access-control-allow-origin"), EVIL);
        let new_browser = old_browser
            .with("sec-fetch-site", "cross-site")
            .with("sec-fetch-mode", "cors")
            .with("sec-fetch-dest", "empty");
        new_browser.send(&open).await.assert_is(403, "cross-origin");
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn another_site_cannot_log_anybody_in_or_out() {
    let app = App::bearer();
    let begin = form("/admin/session", format!("token={SECRET}"));
    for asked in [
        begin.clone(),
        login(SECRET),
        form("/admin/session-end", ""),
        post("/admin/session-end", "{}"),
    ] {
        assert_denies_other_sites(&app, &asked).await;
        app.ask(&asked).await.field("set-cookie");
    }
    // A form that does not say where it is from.
    let unstated = begin.without("origin").without("sec-fetch-site");
    app.denies(&unstated, 403, "cross-origin").await;
}

/// Which one would another server, proxy or browser have read?
#[tokio::test]
async fn fields_that_are_there_twice_are_denied() {
    let app = App::loopback();
    for (name, values, status, code) in [
        ("host", "localhost:3000|localhost:3000", 400, "host"),
        ("host", "localhost:3000|evil.example", 400, "host"),
        ("host", "|localhost", 400, "host"),
        ("host", "localhost\u{ff}", 400, "host"),
        (
            "origin",
            "http://localhost:3000|http://localhost:3000",
            403,
            "cross-origin",
        ),
        ("origin", "null|http://localhost:3000", 403, "cross-origin"),
        ("sec-fetch-site", "same-origin|none", 403, "cross-origin"),
        ("x-tower-throttle", "1|1", 403, "no-custom-header"),
    ] {
        let asked = post(RESET, ANN).without(name);
        let values = values.split('|');
        let asked = values.fold(asked, |asked, value| asked.and(name, value.as_bytes()));
        app.denies(&asked, status, code).await;
    }
    assert!(!app.was_reset());
}
