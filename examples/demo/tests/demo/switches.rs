//! The traffic that the demo sends to itself, and who may switch it.

use serde_json::{Value, json};

use crate::{
    process::{Answer, Demo, new_caller, read, send_with},
    support::eventually,
};

const JSON: (&str, &str) = ("content-type", "application/json");
const OURS: (&str, &str) = ("x-tower-throttle", "1");

pub(crate) fn switch(demo: &Demo, path: &str, order: &Value) -> Answer {
    post(demo, path, &[JSON, OURS], &order.to_string())
}

fn post(demo: &Demo, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    read(send_with(demo.address, "POST", path, fields, body))
}

fn look(demo: &Demo, caller: &str) -> Value {
    demo.get("/api/remaining", caller).json()
}

fn sent(demo: &Demo) -> u64 {
    let sent = &look(demo, "looking")["traffic"]["sent"];
    sent.as_u64().expect("a number")
}

#[test]
fn each_kind_of_traffic_sends_requests_until_it_is_switched_off() {
    let demo = Demo::start(&[]);
    assert_eq!(sent(&demo), 0);
    for mode in ["steady", "burst", "attack", "off"] {
        let before = sent(&demo);
        let on = switch(&demo, "/switches/traffic", &json!({ "mode": mode }));
        assert_eq!((on.status, &on.json()["mode"]), (200, &json!(mode)));
        if mode != "off" {
            eventually("requests", || sent(&demo) > before + 3);
        }
    }
    // A response of a second takes longer than any pause of the traffic, which may have been about to
    // send.
    let [first, second] = [(); 2].map(|()| {
        let answer = demo.get("/api/concurrency?seconds=1", &new_caller());
        assert_eq!(answer.status, 200);
        sent(&demo)
    });
    assert_eq!(first, second);
    // All of it had callers of its own.
    let visitor = demo.get("/api/remaining", "visitor");
    assert_eq!((visitor.left("bucket"), visitor.left("log")), (10, 5));
}

#[test]
fn a_visitor_sees_its_own_requests_and_those_sent_in_its_name() {
    let demo = Demo::start(&[]);
    let visitor = new_caller();
    // From the first look on.
    assert_eq!(look(&demo, &visitor)["requests"], json!([]));
    assert_eq!(demo.get("/api/penalty?page=missing", &visitor).status, 404);
    let shown = look(&demo, &visitor);
    let request = &shown["requests"][0];
    assert_eq!(request["route"], "penalty");
    assert_eq!(
        (&request["status"], &request["allowed"]),
        (&json!(404), &json!(true))
    );
    assert_eq!(shown["latest"], request["n"]);
    // A look after that one shows what is new, and no caller sees another one's.
    let after = format!("/api/remaining?after={}", shown["latest"]);
    assert_eq!(demo.get(&after, &visitor).json()["requests"], json!([]));
    assert_eq!(look(&demo, &new_caller())["requests"], json!([]));

    let order = json!({ "mode": "attack", "as_me": true }).to_string();
    let me = ("x-api-key", visitor.as_str());
    let on = post(&demo, "/switches/traffic", &[JSON, OURS, me], &order);
    assert_eq!(on.json()["as_me"], true);
    eventually("a denial of the visitor", || {
        let shown = demo.get(&after, &visitor).json();
        let requests = shown["requests"].as_array().expect("requests").clone();
        requests
            .iter()
            .any(|one| one["allowed"] == false && one["wait_s"].is_u64())
    });
}

#[test]
fn only_the_own_page_on_this_machine_has_switches() {
    let demo = Demo::start(&[]);
    let steady = r#"{"mode":"steady"}"#;
    let port = demo.address.port();
    let local = format!("localhost:{port}");
    let foreign = format!("attacker.example:{port}");
    let denied: [&[(&str, &str)]; 5] = [
        &[JSON],
        &[JSON, ("x-tower-throttle", "0")],
        &[JSON, OURS, ("sec-fetch-site", "cross-site")],
        &[JSON, OURS, ("host", &foreign)],
        &[JSON, OURS, ("x-forwarded-for", "203.0.113.1")],
    ];
    for path in ["/switches/traffic", "/switches/outage"] {
        for fields in denied {
            let answer = post(&demo, path, fields, steady);
            assert_eq!(answer.status, 403, "{fields:?}");
            assert!(answer.json()["detail"].is_string());
        }
    }
    let form = ("content-type", "application/x-www-form-urlencoded");
    let answer = post(&demo, "/switches/traffic", &[form, OURS], "mode=steady");
    assert_eq!(answer.status, 415);
    let answer = post(
        &demo,
        "/switches/traffic",
        &[JSON, OURS],
        r#"{"mode":"flood"}"#,
    );
    assert_eq!(answer.status, 400);
    assert_eq!(sent(&demo), 0);

    let site = ("sec-fetch-site", "same-origin");
    let fields = [JSON, OURS, site, ("host", local.as_str())];
    assert_eq!(
        post(&demo, "/switches/traffic", &fields, steady).status,
        200
    );
    // A page elsewhere says why it has none.
    let fields = [("host", foreign.as_str())];
    let elsewhere = read(send_with(
        demo.address,
        "GET",
        "/api/remaining",
        &fields,
        "",
    ));
    assert!(elsewhere.json()["why_no_switches"].is_string());
    assert!(look(&demo, "me")["why_no_switches"].is_null());
}
