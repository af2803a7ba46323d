//! Access from the machine of the server.

use http::Version;
use tower_throttle::key::PeerAddr;
use tower_throttle_admin::Access;

use super::{ANN, App, Asked, RESET, SECRET, STATUS, get, post};
use crate::logged;
use crate::support::prelude::*;

#[tokio::test]
async fn programs_on_this_machine_have_access() {
    let app = App::loopback();
    for peer in ["127.0.0.1", "127.9.8.7", "[::1]", "[::ffff:127.0.0.1]"] {
        for host in ["localhost", "localhost:3000", "127.0.0.1:80", "[::1]:3000"] {
            let asked = get(STATUS).peer(&format!("{peer}:1"));
            app.allows(&asked.with("host", host)).await;
        }
    }
    assert!(!app.was_reset());
    app.allows(&post(RESET, ANN)).await;
    assert!(app.was_reset());
}

/// An operator reads who else has access, in words that need no knowledge of networks.
#[tokio::test]
async fn the_page_says_that_it_is_open_to_all_users_of_the_machine() {
    let open = "open to all users of this machine, as <bdi>loopback</bdi>";
    let with_secret = get("/admin").bearer(SECRET);
    for (app, asked, shown) in [
        (App::reading(), get("/admin"), open),
        (App::loopback(), get("/admin"), open),
        (App::bearer(), with_secret, "as <bdi>operator</bdi>"),
    ] {
        let page = app.ask(&asked).await.body;
        let (_, rest) = page.split_once("<p class=\"badges\">").expect("badges");
        assert_eq!(rest.split_once(" <span").expect("a badge").0, shown);
    }
}

#[tokio::test]
async fn changes_on_loopback_are_asked_for_by_name() {
    logged::start();
    let app = App::new(Access::loopback());
    let log = logged::so_far();
    assert!(log.contains("Access::loopback_with_changes()"), "{log}");
    app.allows(&get(STATUS)).await;
    app.denies(&post(RESET, ANN), 403, "read-only").await;
    assert!(app.ask(&get("/admin")).await.body.contains("read-only"));
    assert!(!app.was_reset());
}

#[tokio::test]
async fn other_machines_have_none() {
    let app = App::loopback();
    let peers = "192.0.2.1 10.0.0.1 0.0.0.0 128.0.0.1 [::2] [fe80::1] [::ffff:192.0.2.1] \
                 [64:ff9b::7f00:1]";
    for peer in peers.split(' ') {
        for asked in [post(RESET, ANN), get("/admin")] {
            let asked = asked.peer(&format!("{peer}:80"));
            app.denies(&asked, 403, "not-loopback").await;
        }
    }
    assert!(!app.was_reset());
    // Nor has a request whose peer is unknown.
    let unknown = Asked {
        peer: None,
        ..get(STATUS)
    };
    app.denies(&unknown, 500, "no-peer").await;
    let mut request = unknown.request();
    let peer = PeerAddr("127.0.0.1:1".parse().expect("an address"));
    request.extensions_mut().insert(peer);
    let response = app.router.oneshot(request).await;
    assert_eq!(response.expect("a response").status(), 200);
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
                app.denies(&asked.with(name, value), 403, "forwarded").await;
            }
        }
    }
    // nginx as it is delivered: no field, and HTTP/1.0.
    for version in [Version::HTTP_09, Version::HTTP_10] {
        let asked = Asked {
            version,
            ..get(STATUS)
        };
        app.denies(&asked, 403, "forwarded").await;
    }
    assert!(!app.was_reset());
}
