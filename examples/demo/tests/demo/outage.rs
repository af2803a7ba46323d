//! An outage of Redis that a visitor switches on and off.

use serde_json::json;

use crate::{
    config::FILE,
    process::{Demo, new_caller},
    support::RedisServer,
    support::eventually,
    switches::switch,
};

#[path = "../../src/outage/url.rs"]
#[allow(unreachable_pub, reason = "of the example")]
mod url;

const PATH: &str = "/switches/outage";

fn is_decided_by_store(demo: &Demo) -> bool {
    let answer = demo.get("/api/token-bucket", &new_caller());
    assert_eq!(answer.status, 200);
    answer.is_decided_by_store()
}

#[test]
fn an_outage_changes_who_decides_and_leaves_the_server_alone() {
    let redis = RedisServer::start();
    let demo = Demo::start(&["--redis", &redis.url()]);
    let other = Demo::start(&["--redis", &redis.url()]);
    for link in ["closed", "frozen"] {
        eventually("Redis decides", || is_decided_by_store(&demo));
        let cut = switch(&demo, PATH, &json!({ "link": link }));
        assert_eq!((cut.status, &cut.json()["link"]), (200, &json!(link)));
        eventually("the process decides", || !is_decided_by_store(&demo));
        // The page shows it, and the server is there for others.
        let shown = demo.get("/api/remaining", "caller").json();
        assert_eq!(shown["outage"]["link"], link);
        assert_eq!(shown["decided_by"], "this process (store unavailable)");
        eventually("Redis decides elsewhere", || is_decided_by_store(&other));
        let up = switch(&demo, PATH, &json!({ "link": "up" }));
        assert_eq!(up.status, 200);
        eventually("Redis decides again", || is_decided_by_store(&demo));
    }
    let wrong = switch(&demo, PATH, &json!({ "link": "down" }));
    assert_eq!(wrong.status, 400);
    // An outage does not keep the demo from its end.
    switch(&demo, PATH, &json!({ "link": "frozen" }));
    assert_eq!(demo.terminate().code(), Some(0));
}

#[test]
fn without_a_server_the_page_says_how_to_get_the_switch() {
    for options in [&[][..], &["--config", FILE]] {
        let demo = Demo::start(options);
        let shown = demo.get("/api/remaining", "caller").json();
        let why = shown["outage"]["why_not"].as_str().expect("a reason");
        assert!(why.contains("--redis"), "{why}");
        let cut = switch(&demo, PATH, &json!({ "link": "closed" }));
        assert_eq!(cut.status, 409);
        assert!(is_decided_by_store(&demo));
    }
}

#[test]
fn the_proxy_takes_the_place_of_the_server_in_a_url() {
    let proxy = ([127, 0, 0, 1], 9).into();
    for (url, server, through) in [
        ("redis://h", "h:6379", "redis://127.0.0.1:9"),
        ("redis://h:7/", "h:7", "redis://127.0.0.1:9/"),
        ("redis://", "127.0.0.1:6379", "redis://127.0.0.1:9"),
        ("redis://u:p@h:7/3", "h:7", "redis://u:p@127.0.0.1:9/3"),
        (
            "redis://:p%40@[::1]/",
            "[::1]:6379",
            "redis://:p%40@127.0.0.1:9/",
        ),
        (
            "redis://[::1]:7?a=b@c",
            "[::1]:7",
            "redis://127.0.0.1:9?a=b@c",
        ),
    ] {
        let expected = (server.to_owned(), through.to_owned());
        assert_eq!(url::through_proxy(url, proxy), Ok(expected), "{url}");
    }
    for url in ["redis-cluster://h", "redis-sentinel://h", "rediss://h", "h"] {
        assert!(url::through_proxy(url, proxy).is_err(), "{url}");
    }
}
