//! What is logged of changes, and that no key is in a log or an answer.

use http::Method;
use serde_json::json;
use tokio::{runtime::Runtime, task::yield_now};
use tower_throttle::Fingerprint;

use super::{ask_times, page, plan};
use crate::support::prelude::*;
use crate::{
    logged::logged,
    operator::{Operator, request},
    support::web::{Slow, standing_store},
};

/// A key that is nowhere else.
const KEY: &str = "sk_live_4711";
/// A reason with a line break, which no document takes.
const HOSTILE: &str = "sk_live_4711\nban";

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// A call of each kind, all with an effect.
fn changes() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("reset", json!({ "caller": KEY })),
        (
            "ban",
            json!({ "caller": KEY, "policy": "plan", "for": "1h", "reason": "r", "label": "l" }),
        ),
        ("unban", json!({ "caller": [KEY], "policy": "plan" })),
        (
            "override",
            json!({ "caller": format!("text:{KEY}"), "policy": "plan", "quota": "9 per hour", "for": "1h" }),
        ),
        (
            "clear-override",
            json!({ "caller": format!("header:x-api-key={KEY}"), "policy": "plan" }),
        ),
        ("mode", json!({ "policy": "plan", "mode": "shadow" })),
        ("clear-mode", json!({ "policy": "plan" })),
    ]
}

fn admin_lines(log: &[String]) -> Vec<&String> {
    let lines = log.iter();
    lines
        .filter(|line| line.contains("tower_throttle::admin"))
        .collect()
}

#[test]
fn each_change_is_one_line_with_author_before_and_after() {
    let (layer, _, ann) = page([plan()]);
    let log = logged(|| {
        ask_times(&layer, KEY, 3);
        runtime().block_on(async {
            for (path, body) in changes() {
                ann.post(path, body).await;
            }
        });
    });
    let lines = admin_lines(&log);
    assert_eq!(lines.len(), 7, "{lines:#?}");
    let own = Fingerprint::from(&Key::from(KEY)).to_string();
    for (line, (action, _)) in lines.iter().zip(changes()) {
        assert!(line.contains("INFO"), "{line}");
        assert!(line.contains("an operator made a change"), "{line}");
        assert!(line.contains(r#"who="ann""#), "{line}");
        assert!(line.contains(&format!(r#"action="{action}""#)), "{line}");
        let is_of_caller = !action.contains("mode");
        assert_eq!(line.contains(&own), is_of_caller, "{line}");
    }
    for (line, parts) in lines.iter().zip([
        [
            r#"before="default/plan: fixed window of 2 per hour, 0 of 2 left""#,
            "2 of 2 left\"",
        ],
        ["2 of 2 left\"", "banned by operator until 1795245600000"],
        ["banned by operator until 1795245600000", r#"2 of 2 left""#],
        ["fixed window of 2 per hour, 2 of 2", "9 of 9 left"],
        ["9 of 9 left", "2 of 2 left\""],
        [
            r#"before="default/plan: enforce""#,
            r#"after="default/plan: shadow""#,
        ],
        [
            r#"before="default/plan: shadow""#,
            r#"after="default/plan: enforce""#,
        ],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{line} has not {part}");
        }
    }
}

/// A store that decides, and resets nothing.
#[derive(Clone, Debug)]
struct NoResets(MemoryStore);

impl Store for NoResets {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        self.0.check(check)
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Err(StoreError::unavailable("no route")))
    }
}

/// The document is changed first. The store may fail then.
#[test]
fn a_change_that_is_made_in_part_is_logged_and_answered_so() {
    let (store, _) = standing_store();
    let control = store.control();
    let minute = Duration::from_secs(60);
    let bans = Policy::new("bans", Penalty::after(1).lasting(minute)).key(key::header("x-api-key"));
    let plan = Policy::new("plan", FixedWindow::per_hour(1)).key(key::header("x-api-key"));
    let layer = RateLimitLayer::builder()
        .store(NoResets(store))
        .policy(plan)
        .policy(bans.strike_on_denial())
        .control(control.clone())
        .build()
        .expect("a layer");
    let ann = Operator::new(&layer).with(&control);
    let log = logged(|| {
        ask_times(&layer, KEY, 2);
        runtime().block_on(async {
            control.ban("bans", KEY, minute).await.expect("made");
            let unban = json!({ "caller": KEY, "policy": "bans" });
            let detail = ann.denied("unban", unban, (503, "store-unavailable")).await;
            assert!(detail.contains("a part of it was changed before"));
        });
    });
    assert_eq!(control.entries(), []);
    let lines = admin_lines(&log);
    assert_eq!(lines.len(), 1, "{log:#?}");
    let is_told = lines[0].contains(r#"action="unban""#) && lines[0].contains("not confirmed");
    assert!(is_told, "{lines:?}");
}

#[test]
fn what_has_no_effect_is_not_logged() {
    let (_, control, ann) = page([plan()]);
    let log = logged(|| {
        runtime().block_on(async {
            for path in ["reset", "unban", "clear-override"] {
                let body = json!({ "caller": KEY, "policy": "plan" });
                let made = ann.post(path, body).await;
                assert_eq!(made["changed"], false, "{path}");
            }
            ann.post("clear-mode", json!({ "policy": "plan" })).await;
            let long = KEY.repeat(30);
            for (reason, why) in [
                (&*long, "360 bytes; the longest has 256"),
                (HOSTILE, "control"),
            ] {
                let body =
                    json!({ "caller": KEY, "policy": "plan", "for": "1h", "reason": reason });
                let detail = ann.denied("ban", body, (400, "malformed")).await;
                assert!(
                    detail.starts_with("reason: ") && detail.contains(why),
                    "{detail}"
                );
                assert!(!detail.contains(KEY), "{detail}");
            }
        });
    });
    assert_eq!(admin_lines(&log), Vec::<&String>::new());
    assert_eq!(control.entries(), []);
}

#[test]
fn a_change_is_made_and_logged_also_if_the_client_hangs_up() {
    let store = Slow::new(MemoryStore::new());
    let gate = Arc::clone(&store.gate);
    let limiter = Limiter::new(store, FixedWindow::per_day(2));
    let log = logged(|| {
        runtime().block_on(async {
            gate.add_permits(1);
            assert!(limiter.check(KEY).await.expect("a decision").is_allowed());
            let asked = request(
                Method::POST,
                "/api/v1/reset",
                json!({ "caller": KEY }).to_string(),
            );
            let mut call = Box::pin(Operator::new(&limiter).router().oneshot(asked));
            for _ in 0..10 {
                tokio::select! {
                    biased;
                    answer = &mut call => panic!("the store has not answered: {answer:?}"),
                    () = yield_now() => {}
                }
            }
            drop(call);
            gate.add_permits(1_000_000);
            let is_over = || async {
                tokio::runtime::Handle::current()
                    .metrics()
                    .num_alive_tasks()
                    == 0
            };
            eventually_async("the change has ended", is_over).await;
            let left = limiter.peek(KEY).await.expect("a decision");
            assert_eq!(
                left.policies().next().map(|policy| policy.remaining()),
                Some(2)
            );
        });
    });
    let lines = admin_lines(&log);
    assert_eq!(lines.len(), 1, "{log:#?}");
    assert!(lines[0].contains(r#"action="reset""#), "{lines:?}");
}

#[test]
fn no_key_is_in_an_answer_or_in_the_log() {
    let (layer, control, ann) = page([plan()]);
    let mut said = Vec::new();
    let log = logged(|| {
        ask_times(&layer, KEY, 3);
        runtime().block_on(async {
            let mut calls: Vec<_> = changes()
                .into_iter()
                .map(|(path, body)| (path, body.to_string()))
                .collect();
            let asked = [
                json!({ "caller": KEY }),
                json!({ "caller": [KEY, KEY] }),
                json!({ "caller": format!("cookie:session={KEY}") }),
                json!({ "caller": format!("bearer:{KEY}") }),
                json!({ "caller": format!("ip:{KEY}") }),
                json!({ "caller": format!("fingerprint:{KEY}") }),
                json!({ "caller": format!("number:{KEY}") }),
                json!({ "caller": { KEY: KEY } }),
                json!({ KEY: 1, "caller": "k1" }),
                json!({ "caller": KEY, "policy": KEY }),
                json!({ "caller": KEY, "limiter": KEY }),
                json!(KEY),
            ];
            calls.extend(asked.map(|body| ("lookup", body.to_string())));
            calls.push(("lookup", format!("{{\"caller\": {KEY}}}")));
            calls.push(("mode", json!({ "policy": "plan", "mode": KEY }).to_string()));
            for (path, body) in calls {
                said.push(ann.call(Method::POST, path, body).await);
            }
            for path in ["status", "policies", "entries", "metrics", "top", "denials"] {
                said.push(ann.call(Method::GET, path, "").await);
            }
        });
    });
    for said in &said {
        assert!(!said.text.contains(KEY), "{}", said.text);
        assert!(!format!("{:?}", said.headers).contains(KEY));
    }
    assert!(said.iter().filter(|said| said.status == 400).count() >= 8);
    for line in &log {
        assert!(!line.contains(KEY), "{line}");
    }
    assert!(!format!("{:?}", control.entries()).contains(KEY));
}
