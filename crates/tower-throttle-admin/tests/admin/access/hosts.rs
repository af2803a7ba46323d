//! The host names that the page answers to: another site can let its own name resolve to this server.

use tower_throttle_admin::{Access, Who};

use super::{ANN, App, Asked, RESET, SECRET, STATUS, get, post};

/// As an access by network: it says nothing of which page in a browser asks.
fn anybody() -> Access {
    Access::check(|_| Some(Who::new("ann")))
}

/// What a page of another site sends whose name resolves to this server.
fn rebound(asked: &Asked) -> Asked {
    let asked = asked.clone().with("host", "evil.example");
    let asked = asked.with("origin", "http://evil.example");
    asked.with("sec-fetch-site", "same-origin")
}

#[tokio::test]
async fn a_name_of_another_site_is_denied_with_an_access_by_network() {
    let app = App::new(anybody());
    for asked in [get("/admin"), get(STATUS), post(RESET, ANN)] {
        let answer = app.ask(&rebound(&asked)).await;
        answer.assert_is(403, "host-not-listed");
    }
    let none = get(STATUS).without("host");
    app.ask(&none).await.assert_is(403, "host-not-listed");
    assert!(!app.was_reset());
    // No other site can have these.
    for host in ["localhost:3000", "10.0.0.7:9000", "[2001:db8::1]:9000"] {
        app.ask(&get(STATUS).with("host", host)).await.assert_done();
    }
}

#[tokio::test]
async fn the_page_answers_to_the_names_that_are_listed() {
    for access in [anybody(), Access::bearer(SECRET).expect("a secret")] {
        let app = App::with(access, |admin| admin.hosts(["Limits.Example", "10.0.0.7"]));
        let ask = |host: &str| get(STATUS).bearer(SECRET).with("host", host);
        for host in ["limits.example", "LIMITS.example:9000", "10.0.0.7:9000"] {
            app.ask(&ask(host)).await.assert_done();
        }
        for host in [
            "localhost:3000",
            "10.0.0.8",
            "x.limits.example",
            "limits.example:a",
        ] {
            app.ask(&ask(host)).await.assert_is(403, "host-not-listed");
        }
    }
    // On loopback, they are further names.
    let app = App::with(Access::loopback(), |admin| {
        admin.hosts(["limits.localhost"])
    });
    for host in ["limits.localhost:9000", "localhost:9000", "127.0.0.1"] {
        app.ask(&get(STATUS).with("host", host)).await.assert_done();
    }
    let other = get(STATUS).with("host", "evil.example");
    app.ask(&other).await.assert_is(403, "host-not-local");
}

/// With a secret, another site has neither the cookie nor the secret.
#[tokio::test]
async fn with_a_secret_every_name_is_answered() {
    let app = App::bearer();
    let asked = get(STATUS).with("host", "any.example");
    app.ask(&asked).await.assert_is(401, "no-token");
    app.ask(&asked.bearer(SECRET)).await.assert_done();
}
