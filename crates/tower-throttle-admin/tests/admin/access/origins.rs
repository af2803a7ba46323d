//! Other sites in the operator's browser.

use http::{Method, StatusCode};
use tower_http::cors::CorsLayer;

use super::{ANN, App, Asked, CHANGES, RESET, SECRET, STATUS, ask, form, get, post};

/// What browsers say of a request that another site sends.
fn from_other_sites(asked: &Asked) -> Vec<Asked> {
    let asked = || asked.clone();
    let cross_site = || asked().with("sec-fetch-site", "cross-site");
    vec![
        asked().with("origin", "https://evil.example"),
        asked().with("origin", "http://localhost:3001"),
        asked().with("origin", "http://localhost"),
        asked().with("origin", "null").without("sec-fetch-site"),
        cross_site(),
        cross_site().with("origin", "null"),
        cross_site().with("origin", "https://evil.example"),
        // Another port of this machine.
        asked().with("sec-fetch-site", "same-site"),
        asked()
            .with("sec-fetch-site", "same-site")
            .with("origin", "http://localhost:3001"),
        // What is the one, and not the other.
        cross_site().with("origin", "http://localhost:3000"),
        asked()
            .with("sec-fetch-site", "same-origin")
            .with("origin", "https://evil.example"),
    ]
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
        for asked in from_other_sites(&asked) {
            app.ask(&asked).await.assert_is(403, "cross-origin");
            // Forms have two other types, too.
            for kind in ["text/plain", "multipart/form-data; boundary=x"] {
                let asked = asked.clone().with("content-type", kind);
                app.ask(&asked).await.assert_is(403, "cross-origin");
            }
        }
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn a_script_of_another_site_changes_nothing() {
    let app = App::loopback();
    for asked in from_other_sites(&post(RESET, ANN)) {
        app.ask(&asked).await.assert_is(403, "cross-origin");
    }
    // With the secret of the operator, and with a session.
    let app = App::bearer();
    let session = app.log_in().await;
    for asked in from_other_sites(&post(RESET, ANN)) {
        let with_token = asked.clone().bearer(SECRET);
        app.ask(&with_token).await.assert_is(403, "cross-origin");
        let with_session = asked.with("cookie", &session);
        app.ask(&with_session).await.assert_is(403, "cross-origin");
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn the_page_itself_changes_things() {
    for (origin, site) in [
        (Some("http://localhost:3000"), Some("same-origin")),
        (Some("https://localhost:3000"), None),
        (None, Some("same-origin")),
        (None, None),
    ] {
        let mut asked = post(RESET, ANN);
        if let Some(origin) = origin {
            asked = asked.with("origin", origin);
        }
        if let Some(site) = site {
            asked = asked.with("sec-fetch-site", site);
        }
        let app = App::loopback();
        app.ask(&asked).await.assert_done();
        assert!(app.was_reset());
    }
}

/// A browser of another site sends no other type without asking first, which it is not allowed to.
#[tokio::test]
async fn only_json_with_a_field_of_its_own_changes_anything() {
    let app = App::loopback();
    for kind in [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json-patch+json",
        "text/json",
        "",
    ] {
        let answer = app.ask(&post(RESET, ANN).with("content-type", kind)).await;
        answer.assert_is(415, "content-type");
    }
    let none = post(RESET, ANN).without("content-type");
    app.ask(&none).await.assert_is(415, "content-type");
    let twice = post(RESET, ANN).and("content-type", b"application/json");
    app.ask(&twice).await.assert_is(415, "content-type");
    for value in ["", "0", "true", "1, 1"] {
        let asked = post(RESET, ANN).with("x-tower-throttle", value);
        app.ask(&asked).await.assert_is(403, "no-custom-header");
    }
    let none = post(RESET, ANN).without("x-tower-throttle");
    app.ask(&none).await.assert_is(403, "no-custom-header");
    assert!(!app.was_reset());
    let with_charset = post(RESET, ANN).with("content-type", "Application/JSON; charset=utf-8");
    app.ask(&with_charset).await.assert_done();
}

/// No `GET` changes anything, so an image or a link of another site does not.
#[tokio::test]
async fn a_link_changes_nothing() {
    let app = App::loopback();
    for action in CHANGES {
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
    let tab = link
        .clone()
        .with("sec-fetch-mode", "navigate")
        .with("sec-fetch-dest", "document");
    app.ask(&tab).await.assert_done();
    for (mode, dest) in [
        ("navigate", "iframe"),
        ("navigate", "embed"),
        ("no-cors", "image"),
        ("no-cors", "document"),
        ("cors", "empty"),
    ] {
        let asked = link
            .clone()
            .with("sec-fetch-mode", mode)
            .with("sec-fetch-dest", dest);
        app.ask(&asked).await.assert_is(403, "cross-origin");
    }
    for target in [STATUS, "/admin/api/v1/samples"] {
        for asked in from_other_sites(&get(target)) {
            app.ask(&asked).await.assert_is(403, "cross-origin");
            let tab = asked
                .with("sec-fetch-mode", "navigate")
                .with("sec-fetch-dest", "document");
            app.ask(&tab).await.assert_is(403, "cross-origin");
        }
    }
    // It was typed by the operator.
    let typed = get(STATUS).with("sec-fetch-site", "none");
    app.ask(&typed).await.assert_done();
}

#[tokio::test]
async fn a_preflight_allows_nothing() {
    for app in [App::loopback(), App::bearer()] {
        for target in [RESET, STATUS, "/admin/session", "/admin"] {
            let asked = ask(Method::OPTIONS, target)
                .with("origin", "https://evil.example")
                .with("access-control-request-method", "POST")
                .with(
                    "access-control-request-headers",
                    "content-type,x-tower-throttle",
                );
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
        let asked = asked.with("origin", "https://evil.example");
        let old_browser = asked.send(&open).await;
        old_browser.assert_is(403, "cross-origin");
        assert_eq!(
            old_browser.field("access-control-allow-origin"),
            "https://evil.example"
        );
        let new_browser = asked
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
    let token = format!("token={SECRET}");
    let json = format!(r#"{{"token":"{SECRET}"}}"#);
    for asked in [
        form("/admin/session", &token),
        post("/admin/session", &json),
        form("/admin/session-end", ""),
        post("/admin/session-end", "{}"),
    ] {
        for asked in from_other_sites(&asked) {
            let answer = app.ask(&asked).await;
            answer.assert_is(403, "cross-origin");
            assert!(!answer.fields.contains_key("set-cookie"));
        }
        app.ask(&asked).await.field("set-cookie");
    }
    // A form that does not say where it is from.
    let unstated = form("/admin/session", &token)
        .without("origin")
        .without("sec-fetch-site");
    app.ask(&unstated).await.assert_is(403, "cross-origin");
}

/// Which one would another server, proxy or browser have read?
#[tokio::test]
async fn fields_that_are_there_twice_are_denied() {
    let app = App::loopback();
    for (name, values, status, code) in [
        ("host", &["localhost:3000"; 2][..], 400, "host"),
        ("host", &["localhost:3000", "evil.example"], 400, "host"),
        ("host", &["", "localhost"], 400, "host"),
        ("host", &["localhost\u{ff}"], 400, "host"),
        ("origin", &["http://localhost:3000"; 2], 403, "cross-origin"),
        (
            "origin",
            &["null", "http://localhost:3000"],
            403,
            "cross-origin",
        ),
        (
            "sec-fetch-site",
            &["same-origin", "none"],
            403,
            "cross-origin",
        ),
        ("x-tower-throttle", &["1", "1"], 403, "no-custom-header"),
    ] {
        let asked = post(RESET, ANN).without(name);
        let values = values.iter();
        let asked = values.fold(asked, |asked, value| asked.and(name, value.as_bytes()));
        app.ask(&asked).await.assert_is(status, code);
    }
    assert!(!app.was_reset());
}

/// A page in a sandbox has the origin `null`. So has a form of the page itself, as it sends no
/// referrer; only the browser's own field tells them apart.
#[tokio::test]
async fn an_opaque_origin_is_another_site() {
    let app = App::loopback();
    let opaque = post(RESET, ANN).with("origin", "null");
    app.ask(&opaque).await.assert_is(403, "cross-origin");
    for site in ["cross-site", "same-site", "none"] {
        let asked = opaque.clone().with("sec-fetch-site", site);
        app.ask(&asked).await.assert_is(403, "cross-origin");
    }
    assert!(!app.was_reset());
    let own = opaque.with("sec-fetch-site", "same-origin");
    app.ask(&own).await.assert_done();
}
