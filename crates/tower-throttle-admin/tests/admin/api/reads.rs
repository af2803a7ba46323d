//! What the API shows of layers and limiters.

use serde_json::json;
use tower_throttle::{
    Fingerprint,
    control::{Control, Mode},
};
use tower_throttle_admin::Admin;
use tower_throttle_config::Config;

use super::{ask_times, plan, status};
use crate::support::prelude::*;
use crate::{
    operator::{Operator, assert_parts},
    support::web::{NOW_S, get, layer_of, layer_with, standing_store},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// A layer `api` and a limiter `mail` on one store, and their document.
fn both() -> (RateLimitLayer, Limiter, Control) {
    let (store, _) = standing_store();
    let control = store.control();
    let everyone = Policy::new("all", TokenBucket::per_second(5)).shared();
    let layer = RateLimitLayer::builder()
        .name("api")
        .store(store.clone())
        .policy(plan())
        .policy(everyone.shadow())
        .control(control.clone());
    let limiter = Limiter::builder()
        .name("mail")
        .store(store)
        .policy(Policy::new("mails", FixedWindow::per_day(100)))
        .control(control.clone());
    let layer = layer.build().expect("a layer");
    (layer, limiter.build().expect("a limiter"), control)
}

fn fingerprint(key: impl Into<Key>) -> String {
    Fingerprint::from(&key.into()).to_string()
}

#[tokio::test]
async fn the_status_names_all_layers_limiters_and_stores() {
    let (layer, limiter, control) = both();
    let ann = Operator::new(Admin::new(&layer).target(&limiter).target(&layer));
    let status = ann.get("status").await;
    let names = "api version changes who control config";
    let version = env!("CARGO_PKG_VERSION");
    assert_parts(
        &status,
        names,
        &json!([1, version, true, "ann", null, null]),
    );
    let limiters = json!([
        ["api", "layer", ["plan", "all"], "memory"],
        ["mail", "limiter", ["mails"], "memory"],
    ]);
    let names = "name kind policies store";
    assert_parts(&status["limiters"], names, &limiters);
    let stores = json!([["memory", true, 0]]);
    assert_parts(&status["stores"], "name up failures.timeout", &stores);

    let ann = Operator::of(Admin::new(&layer).control(&control));
    control.set_mode("plan", Mode::Shadow).await.expect("made");
    let status = ann.get("status").await;
    let expected = json!([false, control.status().version, 1, null]);
    let names = "changes control.version control.entries control.problem";
    assert_parts(&status, names, &expected);
}

#[tokio::test]
async fn policies_are_listed_as_they_are_and_as_operators_made_them() {
    let (layer, limiter, control) = both();
    let ann = Operator::new(Admin::new(&layer).target(&limiter).control(&control));
    control.ban("plan", "k1", HOUR).await.expect("made");
    let quota = FixedWindow::per_hour(9).try_into().expect("a quota");
    let given = control.override_quota("plan", "k2", quota);
    given.author("bob").await.expect("made");
    let off = control.set_mode("mails", Mode::Off);
    off.because("outage").await.expect("made");
    control.deny_ip("203.0.113.0/24").await.expect("made");
    control.allow_key("plan", "k1").await.expect("made");
    let policies = ann.get("policies").await;
    assert_eq!(
        policies[0],
        json!({
            "limiter": "api", "kind": "layer", "index": 0, "name": "plan",
            "quota": "fixed window of 2 per hour", "tiers": [], "mode": "enforce", "enforced_percent": 100,
            "by_hand": null, "followed": true, "counts_by": "the header `x-api-key`", "shared": false,
            "overrides": 1, "bans": 1, "on_store_failure": "local",
        })
    );
    let expected = json!([
        ["plan", 0, "layer", "enforce", false, null],
        ["all", 0, "layer", "shadow", true, null],
        ["mails", 1, "limiter", "off", false, "outage"],
    ]);
    let names = "name index kind mode shared by_hand.reason";
    assert_parts(&policies, names, &expected);

    let entries = ann.get("entries").await;
    let (ending, fixed) = ((NOW_S + 3_600) * 1_000, "fixed window of 9 per hour");
    let (k1, k2) = (fingerprint("k1"), fingerprint("k2"));
    let expected = json!([
        ["ban", "plan", k1, ending, null, null, null, null],
        ["override", "plan", k2, null, fixed, "bob", null, null],
        ["mode", "mails", null, null, null, null, null, null],
        [
            "list",
            null,
            null,
            null,
            null,
            null,
            "deny",
            "203.0.113.0/24"
        ],
        ["list", "plan", k1, null, null, null, "allow", null],
    ]);
    let names = "kind policy fingerprint until_ms quota author list range";
    assert_parts(&entries, names, &expected);
}

#[tokio::test]
async fn metrics_top_and_denials_say_who_was_denied() {
    let (layer, limiter, control) = both();
    let ann = Operator::new(Admin::new(&layer).target(&limiter).control(&control));
    for (key, times) in [("k1", 5), ("k2", 3)] {
        ask_times(&layer, key, times);
    }
    let metrics = ann.get("metrics").await;
    let counts =
        "limiter requests.allowed requests.denied decisions.store policies.0.checks.denied";
    let expected = json!([["api", 4, 4, 8, 4], ["mail", 0, 0, 0, 0]]);
    assert_parts(&metrics, counts, &expected);

    let top = ann.get("top").await;
    let expected = json!([
        ["plan", false, fingerprint("k1"), 3],
        ["all", true, fingerprint(Key::everyone()), 3],
        ["plan", false, fingerprint("k2"), 1],
    ]);
    assert_parts(&top, "policy shadow fingerprint count", &expected);
    let one = ann.get("top?limit=1").await;
    assert_eq!(one.as_array().map(Vec::len), Some(1));

    let denials = ann.get("denials").await;
    let latest = &denials[0];
    let callers = json!([{ "policy": "plan", "fingerprint": fingerprint("k2") }]);
    assert_parts(
        latest,
        "limiter reason method callers",
        &json!(["api", "quota_exceeded", "GET", callers]),
    );
    let wait = latest["retry_after_ms"].as_u64().expect("a wait");
    assert!(wait <= 3_600_000, "{wait}");
    let at_ms = latest["at_ms"].as_u64().expect("a time");
    let later = ann.get(&format!("denials?since={at_ms}")).await;
    assert_eq!(later, json!([]));
    let also = ann.get(&format!("denials?since={}", at_ms - 1)).await;
    assert_ne!(also, json!([]));
}

#[tokio::test]
async fn a_query_that_is_not_understood_is_a_problem() {
    let (layer, ..) = both();
    let ann = Operator::new(Admin::new(&layer));
    let paths = "top?limit=0 top?limit=1001 top?limit=-1 top?limit=1&limit=2 top?since=1 \
                 denials?since= denials?since=99999999999999999999 samples?since=now";
    for path in paths.split(' ') {
        ann.read(path).await.assert_is(400, "malformed");
    }
}

/// An entry for a policy of this name has an effect on the other layer alone.
#[tokio::test]
async fn of_two_policies_of_one_name_the_one_that_does_not_follow_is_named() {
    let (layer, limiter, control) = both();
    let (deaf, _) = layer_with([plan()], |builder| builder.name("deaf"));
    let admin = Admin::new(&layer).target(&limiter).target(&deaf);
    let ann = Operator::new(admin.control(&control));
    control.ban("plan", "k1", HOUR).await.expect("made");
    let shadow = control.set_mode("plan", Mode::Shadow);
    shadow.author("bob").await.expect("made");

    let policies = ann.get("policies").await;
    let expected = json!([
        ["plan", "api", "shadow", true, "bob"],
        ["all", "api", "shadow", true, null],
        ["mails", "mail", "enforce", true, null],
        ["plan", "deaf", "enforce", false, null],
    ]);
    let names = "name limiter mode followed by_hand.author";
    assert_parts(&policies, names, &expected);
    let status = ann.get("status").await;
    assert_eq!(status["control"]["not_followed"], json!(["plan"]));

    let question = json!({ "caller": "k1", "policy": "plan" });
    let found = ann.post("lookup", question).await;
    let expected = json!([[true, true, "ban"], [false, false, null]]);
    assert_parts(
        &found["policies"],
        "followed banned entries.0.kind",
        &expected,
    );
}

/// A layer of a file follows in each of its versions, and the document need not be named.
#[tokio::test]
async fn the_layers_of_a_file_follow_the_document_of_its_store() {
    let file = |quota: &str| {
        let policy = format!("name = \"plan\"\nquota = {quota:?}\nkey = \"header:x-api-key\"");
        let text = format!("version = 1\n[[policy]]\n{policy}\n[layer.api]\n[limiter.jobs]");
        Config::from_toml(&text).expect("a file")
    };
    let limits = file("2 per hour").build().expect("limits");
    let layer = limits.layer("api").expect("a layer");
    let (deaf, _) = layer_of([plan()]);
    let ann = Operator::new(Admin::new(&limits).target(&deaf));
    for quota in ["2 per hour", "3 per hour"] {
        limits.replace(file(quota)).expect("a version");
        let policies = ann.get("policies").await;
        assert_parts(&policies, "followed", &json!([[true], [true], [false]]));
    }
    let ban = json!({ "caller": "header:x-api-key=k1", "policy": "plan", "for": "1h" });
    assert_eq!(ann.post("ban", ban).await["changed"], true);
    assert_eq!((status(&layer, "k1"), status(&layer, "k2")), (429, 200));
    let found = ann.look_up("k1").await;
    assert_eq!(found["policies"][0]["banned_by"], "operator");
    assert_eq!(limits.control().expect("a document").entries().len(), 1);
}

#[tokio::test]
async fn of_all_denials_the_latest_thousand_are_listed() {
    let day = || Policy::new("day", FixedWindow::per_day(1)).key(key::header("k"));
    let layers = [(); 5].map(|()| layer_of([day()]).0);
    for layer in &layers {
        for caller in 0..256 {
            (0..2).for_each(|_| drop(ask(layer, get([("k", caller)]))));
        }
    }
    let (first, others) = layers.split_first().expect("layers");
    let admin = Admin::new(first);
    let ann = Operator::new(others.iter().fold(admin, Admin::target));
    let denials = ann.get("denials").await;
    assert_eq!(denials.as_array().map(Vec::len), Some(1_000));
}
