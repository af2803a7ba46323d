//! The host names that the page answers to: another site can let its own name resolve to this server.

use tower_throttle_admin::{Access, Who};

use super::{ANN, App, RESET, SECRET, STATUS, get, post};

/// As an access by network: it says nothing of which page in a browser asks.
fn for_all() -> Access {
    Access::check(|_| Some(Who::new("ann")))
}

/// Asserts that a page whose name resolves to this server has no access.
async fn assert_denies_rebound(app: &App, host: &str, code: &str) {
    for asked in [get("/admin"), get(STATUS), post(RESET, ANN)] {
        let asked = asked
            .with("host", host)
            .with("origin", &format!("http://{host}"))
            .with("sec-fetch-site", "same-origin");
        app.denies(&asked, 403, code).await;
    }
    let none = get(STATUS).without("host");
    app.denies(&none, 403, code).await;
    assert!(!app.was_reset());
}

#[tokio::test]
async fn a_name_of_another_site_is_denied_with_an_access_by_network() {
    let app = App::new(for_all());
    assert_denies_rebound(&app, "evil.example", "host-not-listed").await;
    // No other site can have these.
    for host in ["localhost:3000", "10.0.0.7:9000", "[2001:db8::1]:9000"] {
        app.allows(&get(STATUS).with("host", host)).await;
    }
}

/// For the browser, the page and the other site are then of one origin.
#[tokio::test]
async fn a_name_of_another_site_is_denied_on_loopback() {
    let app = App::loopback();
    for host in [
        "evil.example",
        "evil.example:3000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "",
    ] {
        assert_denies_rebound(&app, host, "host-not-local").await;
    }
}

#[tokio::test]
async fn the_page_answers_to_the_names_that_are_listed() {
    let bearer = || Access::bearer(SECRET).expect("a secret");
    let listed = ["Limits.Example", "10.0.0.7", "limits.localhost"];
    for (access, local) in [(for_all(), 403), (bearer(), 403), (Access::loopback(), 200)] {
        let app = App::with(access, |admin| admin.hosts(listed));
        for (host, status) in [
            ("limits.example", 200),
            ("LIMITS.example:9000", 200),
            ("limits.localhost:9000", 200),
            ("10.0.0.7:9000", 200),
            // On loopback, the list has further names.
            ("localhost:3000", local),
            ("10.0.0.8", 403),
            ("x.limits.example", 403),
            ("limits.example:a", 403),
        ] {
            let asked = get(STATUS).bearer(SECRET).with("host", host);
            let answer = app.ask(&asked).await;
            assert_eq!(answer.status, status, "{host}: {answer:?}");
        }
    }
    // With a secret, another site has neither the cookie nor the secret.
    let app = App::new(bearer());
    let any = get(STATUS).with("host", "any.example");
    app.denies(&any, 401, "no-token").await;
    app.allows(&any.bearer(SECRET)).await;
}
