//! What the API shows of layers and limiters.

use serde_json::{Value, json};
use tower_throttle::{
    Fingerprint,
    control::{Control, Mode},
};
use tower_throttle_config::Config;

use super::{ask_times, plan};
use crate::support::prelude::*;
use crate::{
    operator::{Operator, parts},
    support::web::{NOW_S, get, layer_of, layer_with, standing_store},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// A layer `api` and a limiter `mail` on one store, and their document.
fn both() -> (RateLimitLayer, Limiter, Control) {
    let (store, _) = standing_store();
    let control = store.control();
    let everyone = Policy::new("all", TokenBucket::per_second(5))
        .shared()
        .shadow();
    let layer = RateLimitLayer::builder()
        .name("api")
        .store(store.clone())
        .policy(plan())
        .policy(everyone)
        .control(control.clone());
    let limiter = Limiter::builder()
        .name("mail")
        .store(store)
        .policy(Policy::new("mails", FixedWindow::per_day(100)))
        .control(control.clone());
    (
        layer.build().expect("a layer"),
        limiter.build().expect("a limiter"),
        control,
    )
}

fn fingerprint(key: &str) -> String {
    Fingerprint::from(&Key::from(key)).to_string()
}

#[tokio::test]
async fn the_status_names_all_layers_limiters_and_stores() {
    let (layer, limiter, control) = both();
    let ann = Operator::new(&layer).also(&limiter).also(&layer);
    let status = ann.get("status").await;
    assert_eq!(parts(&status, "api changes who"), json!([1, true, "ann"]));
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        status["limiters"],
        json!([
            { "name": "api", "kind": "layer", "policies": ["plan", "all"], "store": "memory" },
            { "name": "mail", "kind": "limiter", "policies": ["mails"], "store": "memory" },
        ])
    );
    let [store] = &status["stores"].as_array().expect("a list")[..] else {
        panic!("one store: {status}");
    };
    assert_eq!(parts(store, "name up"), json!(["memory", true]));
    assert_eq!(store["failures"]["timeout"], 0);
    assert_eq!(parts(&status, "control config"), json!([null, null]));

    let ann = ann.with(&control).who_only_looks();
    control.set_mode("plan", Mode::Shadow).await.expect("made");
    let status = ann.get("status").await;
    assert_eq!(status["changes"], false);
    let document = &status["control"];
    assert_eq!(
        parts(document, "version entries"),
        json!([control.status().version, 1])
    );
    assert_eq!(document["problem"], Value::Null);
}

#[tokio::test]
async fn policies_are_listed_as_they_are_and_as_operators_made_them() {
    let (layer, limiter, control) = both();
    let ann = Operator::new(&layer).also(&limiter).with(&control);
    control.ban("plan", "k1", HOUR).await.expect("made");
    let quota = FixedWindow::per_hour(9).try_into().expect("a quota");
    let given = control.override_quota("plan", "k2", quota);
    given.author("bob").await.expect("made");
    control
        .set_mode("mails", Mode::Off)
        .because("outage")
        .await
        .expect("made");
    let policies = ann.get("policies").await;
    let policies = policies.as_array().expect("a list");
    let of = |name: &str| {
        let mut found = policies.iter().filter(|policy| policy["name"] == name);
        found.next().expect("a policy").clone()
    };
    assert_eq!(
        of("plan"),
        json!({
            "limiter": "api", "kind": "layer", "index": 0, "name": "plan",
            "quota": "fixed window of 2 per hour", "tiers": [], "mode": "enforce", "enforced_percent": 100,
            "by_hand": null, "followed": true, "counts_by": "the header `x-api-key`", "shared": false,
            "overrides": 1, "bans": 1, "on_store_failure": "local",
        })
    );
    assert_eq!(
        (&of("all")["mode"], &of("all")["shared"]),
        (&json!("shadow"), &json!(true))
    );
    let mails = of("mails");
    assert_eq!(mails["index"], 1);
    assert_eq!(parts(&mails, "mode kind"), json!(["off", "limiter"]));
    assert_eq!(mails["by_hand"]["reason"], "outage");

    let entries = ann.get("entries").await;
    let entries = entries.as_array().expect("a list");
    let kinds: Vec<_> = entries.iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["ban", "override", "mode"]);
    let [ban, given, _] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!(
        parts(ban, "policy fingerprint"),
        json!(["plan", fingerprint("k1")])
    );
    assert_eq!(ban["until_ms"], (NOW_S + 3_600) * 1_000);
    assert_eq!(
        parts(given, "quota author"),
        json!(["fixed window of 9 per hour", "bob"])
    );
}

#[tokio::test]
async fn lists_of_the_document_are_entries() {
    let (layer, _, control) = both();
    control.deny_ip("203.0.113.0/24").await.expect("made");
    control.allow_key("k1").await.expect("made");
    let ann = Operator::new(&layer).with(&control);
    let entries = ann.get("entries").await;
    let seen = |entry: &Value| {
        (
            entry["kind"].clone(),
            entry["list"].clone(),
            entry["range"].clone(),
        )
    };
    let expected = [
        (json!("list"), json!("deny"), json!("203.0.113.0/24")),
        (json!("list"), json!("allow"), Value::Null),
    ];
    let entries = entries.as_array().expect("a list");
    assert_eq!(entries.iter().map(seen).collect::<Vec<_>>(), expected);
    assert_eq!(entries[1]["fingerprint"], fingerprint("k1"));
}

#[tokio::test]
async fn metrics_top_and_denials_say_who_was_denied() {
    let (layer, limiter, control) = both();
    let ann = Operator::new(&layer).also(&limiter).with(&control);
    for (key, times) in [("k1", 5), ("k2", 3)] {
        ask_times(&layer, key, times);
    }
    let metrics = ann.get("metrics").await;
    assert_eq!(metrics[0]["limiter"], "api");
    assert_eq!(metrics[0]["requests"]["allowed"], 4);
    assert_eq!(metrics[0]["requests"]["denied"], 4);
    assert_eq!(metrics[0]["decisions"]["store"], 8);
    assert_eq!(metrics[0]["policies"][0]["name"], "plan");
    assert_eq!(metrics[0]["policies"][0]["checks"]["denied"], 4);
    assert_eq!(metrics[1]["requests"]["denied"], 0);

    let top = ann.get("top").await;
    let counts = top.as_array().expect("a list").iter();
    let counts: Vec<_> = counts
        .map(|one| {
            json!([
                one["policy"],
                one["shadow"],
                one["fingerprint"],
                one["count"]
            ])
        })
        .collect();
    assert_eq!(
        counts,
        [
            json!(["plan", false, fingerprint("k1"), 3]),
            json!([
                "all",
                true,
                Fingerprint::from(&Key::everyone()).to_string(),
                3
            ]),
            json!(["plan", false, fingerprint("k2"), 1])
        ]
    );
    let one = ann.get("top?limit=1").await;
    assert_eq!(one.as_array().map(Vec::len), Some(1));

    let denials = ann.get("denials").await;
    let latest = &denials[0];
    assert_eq!(
        parts(latest, "limiter reason method"),
        json!(["api", "quota_exceeded", "GET"])
    );
    assert_eq!(
        latest["callers"],
        json!([{ "policy": "plan", "fingerprint": fingerprint("k2") }])
    );
    assert!(
        latest["retry_after_ms"]
            .as_u64()
            .is_some_and(|wait| wait <= 3_600_000)
    );
    let at_ms = latest["at_ms"].as_u64().expect("a time");
    let later = ann.get(&format!("denials?since={at_ms}")).await;
    assert_eq!(later, json!([]));
    let also = ann.get(&format!("denials?since={}", at_ms - 1)).await;
    assert_ne!(also, json!([]));
}

#[tokio::test]
async fn a_query_that_is_not_understood_is_a_problem() {
    let (layer, ..) = both();
    let ann = Operator::new(&layer);
    let paths = "top?limit=0 top?limit=1001 top?limit=-1 top?limit=1&limit=2 top?since=1 \
                 denials?since= denials?since=99999999999999999999 samples?since=now";
    for path in paths.split(' ') {
        let said = ann.call(http::Method::GET, path, "").await;
        assert_eq!(
            (said.status.as_u16(), &said.json()["code"]),
            (400, &json!("malformed")),
            "{path}"
        );
    }
}

/// An entry for a policy of this name has an effect on the other layer alone.
#[tokio::test]
async fn of_two_policies_of_one_name_the_one_that_does_not_follow_is_named() {
    let (layer, limiter, control) = both();
    let (deaf, _) = layer_with([plan()], |builder| builder.name("deaf"));
    let ann = Operator::new(&layer).also(&limiter).also(&deaf);
    let ann = ann.with(&control);
    control.ban("plan", "k1", HOUR).await.expect("made");
    control.set_mode("plan", Mode::Shadow).await.expect("made");

    let policies = ann.get("policies").await;
    let policies = policies.as_array().expect("a list").iter();
    let plans = policies.filter(|policy| policy["name"] == "plan");
    let plans: Vec<_> = plans
        .map(|plan| {
            let is_by_hand = !plan["by_hand"].is_null();
            (
                &plan["limiter"],
                &plan["mode"],
                &plan["followed"],
                is_by_hand,
            )
        })
        .collect();
    assert_eq!(
        plans,
        [
            (&json!("api"), &json!("shadow"), &json!(true), true),
            (&json!("deaf"), &json!("enforce"), &json!(false), false),
        ]
    );
    let status = ann.get("status").await;
    assert_eq!(status["control"]["not_followed"], json!(["plan"]));

    let question = json!({ "caller": "k1", "policy": "plan" });
    let found = ann.post("lookup", question).await;
    let found = found["policies"].as_array().expect("a list").iter();
    let found: Vec<_> = found
        .map(|state| {
            (
                &state["followed"],
                &state["banned"],
                &state["entries"][0]["kind"],
            )
        })
        .collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(
        found,
        [(&yes, &yes, &json!("ban")), (&no, &no, &Value::Null)]
    );
}

/// A layer of a file follows in each of its versions.
#[tokio::test]
async fn the_layers_of_a_file_follow_its_document() {
    let text = |quota: &str| {
        let text = format!(
            "version = 1\n[[policy]]\nname = \"plan\"\nquota = {quota:?}\n[layer.api]\n[limiter.jobs]"
        );
        Config::from_toml(&text).expect("a file")
    };
    let limits = text("2 per hour").build().expect("limits");
    let control = limits.control().expect("in memory");
    let (deaf, _) = layer_of([plan()]);
    let ann = Operator::new(&limits).also(&deaf).with(&control);
    for quota in ["2 per hour", "3 per hour"] {
        limits.replace(text(quota)).expect("a version");
        let policies = ann.get("policies").await;
        let policies = policies.as_array().expect("a list").iter();
        let followed: Vec<_> = policies.map(|policy| policy["followed"].clone()).collect();
        assert_eq!(followed, [true, true, false]);
    }
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
    let ann = others.iter().fold(Operator::new(first), Operator::also);
    let denials = ann.get("denials").await;
    assert_eq!(denials.as_array().map(Vec::len), Some(1_000));
}
