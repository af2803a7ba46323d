//! Access from the machine of the server.

use http::{StatusCode, Version};
use tower_throttle::key::PeerAddr;
use tower_throttle_admin::Access;

use super::{ANN, App, Asked, RESET, SECRET, STATUS, get, post};
use crate::logged;

#[tokio::test]
async fn programs_on_this_machine_have_access() {
    let app = App::loopback();
    for peer in [
        "127.0.0.1:1",
        "127.9.8.7:1",
        "[::1]:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        for host in ["localhost", "localhost:3000", "127.0.0.1:80", "[::1]:3000"] {
            let asked = get(STATUS).peer(peer).with("host", host);
            app.ask(&asked).await.assert_done();
        }
    }
    assert!(!app.was_reset());
    app.ask(&post(RESET, ANN)).await.assert_done();
    assert!(app.was_reset());
}

/// An operator reads who else has access, in words that need no knowledge of networks.
#[tokio::test]
async fn the_page_says_that_it_is_open_to_all_users_of_the_machine() {
    let badges = async |app: &App, asked: &Asked| {
        let page = app.ask(asked).await.body;
        let (_, rest) = page.split_once("<p class=\"badges\">").unwrap();
        rest.split_once(" <span").unwrap().0.to_owned()
    };
    let reads = App::with(Access::loopback(), |admin| admin);
    let open = "open to all users of this machine";
    assert_eq!(badges(&reads, &get("/admin")).await, open);
    assert_eq!(
        badges(&App::loopback(), &get("/admin")).await,
        format!("{open}, as <bdi>loopback</bdi>")
    );
    assert_eq!(
        badges(&App::bearer(), &get("/admin").bearer(SECRET)).await,
        "as <bdi>operator</bdi>"
    );
}

#[tokio::test]
async fn changes_on_loopback_are_asked_for_by_name() {
    logged::start();
    let app = App::new(Access::loopback());
    let log = logged::so_far();
    assert!(log.contains("Access::loopback_with_changes()"), "{log}");
    app.ask(&get(STATUS)).await.assert_done();
    app.ask(&post(RESET, ANN)).await.assert_is(403, "read-only");
    assert!(app.ask(&get("/admin")).await.body.contains("read-only"));
    assert!(!app.was_reset());
    let app = App::new(Access::loopback_with_changes());
    app.ask(&post(RESET, ANN)).await.assert_done();
    assert!(app.was_reset());
}

#[tokio::test]
async fn other_machines_have_none() {
    let app = App::loopback();
    let peers = "192.0.2.1 10.0.0.1 0.0.0.0 128.0.0.1 [::2] [fe80::1] [::ffff:192.0.2.1] \
                 [64:ff9b::7f00:1]";
    for peer in peers.split(' ') {
        let peer = &format!("{peer}:80");
        let answer = app.ask(&post(RESET, ANN).peer(peer)).await;
        answer.assert_is(403, "not-loopback");
        let answer = app.ask(&get("/admin").peer(peer)).await;
        answer.assert_is(403, "not-loopback");
    }
    assert!(!app.was_reset());
}

#[tokio::test]
async fn without_the_address_of_the_peer_nobody_has() {
    let mut asked = get(STATUS);
    asked.peer = None;
    let app = App::loopback();
    app.ask(&asked).await.assert_is(500, "no-peer");
    let mut request = asked.request();
    let peer = PeerAddr("127.0.0.1:1".parse().unwrap());
    request.extensions_mut().insert(peer);
    let response = tower::ServiceExt::oneshot(app.router, request).await;
    assert_eq!(response.unwrap().status(), StatusCode::OK);
}

/// A page of another site lets its own name resolve to this machine: for the browser, both are then
/// of one origin.
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
        for asked in [get("/admin"), get(STATUS), post(RESET, ANN)] {
            let asked = asked
                .with("host", host)
                .with("origin", &format!("http://{host}"))
                .with("sec-fetch-site", "same-origin");
            app.ask(&asked).await.assert_is(403, "host-not-local");
        }
    }
    let none = get(STATUS).without("host");
    app.ask(&none).await.assert_is(403, "host-not-local");
    assert!(!app.was_reset());
}

/// The proxy is on this machine, and its clients are anywhere.
#[tokio::test]
async fn a_request_through_a_proxy_is_not_from_this_machine() {
    let app = App::loopback();
    let names = "forwarded via x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded \
                 x-real-ip x-client-ip cf-connecting-ip cf-ray true-client-ip fastly-client-ip \
                 cdn-loop x-envoy-external-address";
    for name in names.split(' ') {
        for value in ["127.0.0.1", ""] {
            for asked in [get("/admin"), get(STATUS), post(RESET, ANN)] {
                let answer = app.ask(&asked.with(name, value)).await;
                answer.assert_is(403, "forwarded");
            }
        }
    }
    // nginx as it is delivered: no field, and HTTP/1.0.
    for version in [Version::HTTP_09, Version::HTTP_10] {
        let mut asked = get(STATUS);
        asked.version = version;
        app.ask(&asked).await.assert_is(403, "forwarded");
    }
    assert!(!app.was_reset());
}
