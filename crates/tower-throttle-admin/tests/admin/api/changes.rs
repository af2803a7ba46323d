//! What operators change by the API.

use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint,
    control::{Control, Mode},
};

use tower_throttle_admin::Admin;

use super::{ask_times, page, plan, status};
use crate::support::prelude::*;
use crate::{
    operator::{Operator, assert_parts, each},
    support::web::{NOW_S, layer_of},
};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_shared_bucket_can_be_named_by_its_fingerprint() {
    let all = Policy::new("all", TokenBucket::per_day(10)).shared();
    let (layer, control, ann) = page([all]);
    let ban = json!({ "caller": "everyone:", "policy": "all", "for": "1h" });
    ann.post("ban", ban).await;
    assert_eq!(status(&layer, "k1"), 429);
    let everyone = control.fingerprint(Key::everyone());
    let unban = json!({ "caller": format!("fingerprint:{everyone}"), "policy": "all" });
    assert_eq!(ann.post("unban", unban).await["changed"], true);
    assert!(control.entries().is_empty());
    assert_eq!(status(&layer, "k1"), 200);
    // Others are no name of it.
    let other = control.fingerprint("k1").to_string();
    let ban = json!({ "caller": other, "policy": "all", "for": "1h" });
    ann.denied("ban", ban, (409, "shared-policy")).await;
    // An entry of one caller is left over if the policy had a bucket for each.
    for key in [Key::from("k1"), Key::everyone()] {
        control.ban("all", key, HOUR).await.expect("made");
    }
    let unban = json!({ "caller": "k1", "policy": "all" });
    assert_eq!(ann.post("unban", unban).await["changed"], true);
    let left = each(&ann.get("entries").await, "fingerprint");
    assert_eq!(left, [json!([everyone.to_string()])]);
}

#[tokio::test]
async fn a_ban_denies_until_it_is_lifted() {
    let (layer, control, ann) = page([plan()]);
    let ban = json!({
        "caller": "k1", "policy": "plan", "for": "1h", "reason": "scraping", "label": "customer 7",
    });
    let made = ann.post("ban", ban).await;
    assert_parts(
        &made,
        "changed problem before.policies.0.banned",
        &json!([true, null, false]),
    );
    let after = &made["after"]["policies"][0];
    let ending = (NOW_S + 3_600) * 1_000;
    assert_parts(
        after,
        "banned banned_by allowed banned_until_ms",
        &json!([true, "operator", false, ending]),
    );
    let own = Fingerprint::from(&Key::from("k1")).to_string();
    assert_parts(
        &after["entries"][0],
        "author reason label fingerprint",
        &json!(["ann", "scraping", "customer 7", own]),
    );
    assert_eq!((status(&layer, "k1"), status(&layer, "k2")), (429, 200));

    for is_changed in [true, false] {
        let unban = json!({ "caller": "k1", "policy": "plan" });
        assert_eq!(ann.post("unban", unban).await["changed"], is_changed);
        assert_eq!((status(&layer, "k1"), control.entries().len()), (200, 0));
    }
}

#[tokio::test]
async fn an_unban_also_lifts_the_ban_of_a_penalty() {
    let bans = Policy::new("bans", Penalty::after(1).lasting(Duration::from_secs(600)));
    let bans = bans.key(key::header("x-api-key")).strike_on_denial();
    let (layer, control, ann) = page([plan().cost(2), bans]);
    ask_times(&layer, "k1", 2);
    control.ban("bans", "k1", HOUR).await.expect("made");
    let unban = json!({ "caller": "k1", "policy": "bans" });
    let lifted = ann.post("unban", unban.clone()).await;
    assert_parts(
        &lifted,
        "changed before.policies.0.banned after.policies.0.banned",
        &json!([true, true, false]),
    );
    let reset = json!({ "caller": "k1", "policy": "plan" });
    ann.post("reset", reset).await;
    assert_eq!(status(&layer, "k1"), 200);
    // Without a document, the ban of a penalty can be lifted all the same.
    ask_times(&layer, "k1", 2);
    let bob = Operator::new(Admin::new(&layer));
    let lifted = bob.post("unban", unban.clone()).await;
    assert_parts(
        &lifted,
        "changed before.policies.0.banned_by",
        &json!([true, "policy"]),
    );
    bob.denied("unban", unban, (409, "no-control")).await;
}

#[tokio::test]
async fn a_policy_keeps_a_mode_and_a_quota_that_cannot_be_replaced() {
    let (_, control, ann) = page([Policy::new("slots", Concurrency::new(2)).shared()]);
    let body = json!({ "policy": "slots", "mode": "shadow" });
    ann.denied("mode", body, (409, "cannot-shadow")).await;
    let penalty = "penalty after 3 strikes, lasting 1 minute";
    let body = json!({ "caller": "everyone:", "policy": "slots", "quota": penalty, "for": "1h" });
    ann.denied("override", body, (409, "cannot-override")).await;
    assert_eq!(control.status().version, 0);
    let off = json!({ "policy": "slots", "mode": "off" });
    let made = ann.post("mode", off).await;
    assert_parts(&made, "after.0.mode problem", &json!(["off", null]));
}

const CHANGES: [(&str, &str); 7] = [
    ("reset", r#"{"caller":"k1"}"#),
    ("ban", r#"{"caller":"k1","policy":"plan","for":"1h"}"#),
    ("unban", r#"{"caller":"k1","policy":"plan"}"#),
    (
        "override",
        r#"{"caller":"k1","policy":"plan","for":"1h","quota":"fixed window of 9 per hour"}"#,
    ),
    ("clear-override", r#"{"caller":"k1","policy":"plan"}"#),
    ("mode", r#"{"policy":"plan","mode":"off"}"#),
    ("clear-mode", r#"{"policy":"plan"}"#),
];

#[tokio::test]
async fn what_can_have_no_effect_is_denied() {
    let (layer, _) = layer_of([plan()]);
    // Without a document, callers can be reset. With another one, the layer does not follow it.
    let (alone, other) = (Operator::new(Admin::new(&layer)), Control::in_memory());
    let deaf = Operator::new(Admin::new(&layer).control(&other));
    let (_, control, ann) = page([plan()]);
    for (path, body) in CHANGES.iter().skip(1) {
        alone.denied(path, body, (409, "no-control")).await;
        deaf.denied(path, body, (409, "not-followed")).await;
        // Nor is there a policy of this name.
        let body = body.replace("plan", "plans");
        let detail = ann.denied(path, body, (404, "unknown-policy")).await;
        assert!(detail.ends_with("there are plan"), "{detail}");
    }
    assert_eq!((other.status().version, control.status().version), (0, 0));
}

/// A document outlives policies: one of another version of the application, for example.
#[tokio::test]
async fn entries_of_policies_that_are_gone_can_be_removed() {
    let (_, control, ann) = page([plan()]);
    let quota: Quota = "9 per hour".parse().expect("a quota");
    for policy in ["gone", "plan"] {
        control.ban(policy, "k1", HOUR).await.expect("made");
        let given = control.override_quota(policy, "k2", quota);
        given.until(HOUR).await.expect("made");
        control.set_mode(policy, Mode::Shadow).await.expect("made");
    }
    // As the page names them: what an entry says.
    let remove = async |ann: &Operator, entry: &Value| {
        let path = match entry["kind"].as_str().expect("a kind") {
            "ban" => "unban",
            "override" => "clear-override",
            _ => "clear-mode",
        };
        let mut body = json!({ "policy": entry["policy"] });
        if let Some(caller) = entry["fingerprint"].as_str() {
            body["caller"] = format!("fingerprint:{caller}").into();
        }
        assert_eq!(ann.post(path, body.clone()).await["changed"], true);
        (path, body)
    };
    let entries = ann.get("entries").await;
    let entries = entries.as_array().expect("a list");
    let of_gone = entries.iter().filter(|entry| entry["policy"] == "gone");
    for entry in of_gone {
        let (path, body) = remove(&ann, entry).await;
        ann.denied(path, body, (404, "unknown-policy")).await;
    }
    assert_eq!(control.entries().len(), 3);
    // A layer that was built without the document, too.
    let (layer, _) = layer_of([plan()]);
    let bob = Operator::new(Admin::new(&layer).control(&control));
    for entry in entries.iter().filter(|entry| entry["policy"] == "plan") {
        remove(&bob, entry).await;
    }
    assert_eq!(control.entries(), []);
}
