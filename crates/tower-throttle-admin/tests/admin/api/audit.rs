//! What is logged of changes, and that no key is in a log or an answer.

use serde_json::{Value, json};
use tokio::{runtime::Handle, task::yield_now};
use tower_throttle::Fingerprint;

use tower_throttle_admin::Admin;

use super::{ask_times, page, plan, runtime};
use crate::support::prelude::*;
use crate::{
    asked::post,
    logged::logged,
    operator::Operator,
    support::{
        assert_one_line,
        web::{Slow, standing_store},
    },
};

/// A key that is nowhere else.
const KEY: &str = "sk_live_4711";

/// A call of each kind, all with an effect.
fn changes() -> [(&'static str, Value); 7] {
    let typed = |caller: &str| caller.replace("KEY", KEY);
    let ban = json!({ "caller": KEY, "policy": "plan", "for": "1h", "reason": "r", "label": "l" });
    let text = typed("text:KEY");
    let given = json!({ "caller": text, "policy": "plan", "quota": "9 per hour", "for": "1h" });
    let header = typed("header:x-api-key=KEY");
    [
        ("reset", json!({ "caller": KEY })),
        ("ban", ban),
        ("unban", json!({ "caller": [KEY], "policy": "plan" })),
        ("override", given),
        (
            "clear-override",
            json!({ "caller": header, "policy": "plan" }),
        ),
        ("mode", json!({ "policy": "plan", "mode": "shadow" })),
        ("clear-mode", json!({ "policy": "plan" })),
    ]
}

/// Returns what the admin page logs while a future runs.
fn logged_by_admin(run: impl Future<Output = ()>) -> Vec<String> {
    let mut log = logged(|| runtime().block_on(run));
    log.retain(|line| line.contains("tower_throttle::admin"));
    log
}

#[test]
fn each_change_is_one_line_with_author_before_and_after() {
    let (layer, _, ann) = page([plan()]);
    let lines = logged_by_admin(async {
        ask_times(&layer, KEY, 3);
        for (path, body) in changes() {
            ann.post(path, body).await;
        }
    });
    assert_eq!(lines.len(), 7, "{lines:#?}");
    let own = Fingerprint::from(&Key::from(KEY)).to_string();
    for ((line, (action, _)), [before, after]) in lines.iter().zip(changes()).zip([
        [
            "default/plan: fixed window of 2 per hour, 0 of 2 left\"",
            "2 of 2 left\"",
        ],
        ["2 of 2 left\"", "banned by operator until 1795245600000"],
        ["banned by operator until 1795245600000", "2 of 2 left\""],
        ["fixed window of 2 per hour, 2 of 2", "9 of 9 left"],
        ["9 of 9 left", "2 of 2 left\""],
        ["\"default/plan: enforce\"", "\"default/plan: shadow\""],
        ["\"default/plan: shadow\"", "\"default/plan: enforce\""],
    ]) {
        let action = format!(r#"who="ann" action="{action}""#);
        for part in ["INFO", "an operator made a change", &action, before, after] {
            assert!(line.contains(part), "{line} has not {part}");
        }
        let is_of_caller = !action.contains("mode");
        assert_eq!(line.contains(&own), is_of_caller, "{line}");
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
    let layer = RateLimitLayer::builder()
        .store(NoResets(store))
        .policy(plan().cost(2))
        .policy(bans.strike_on_denial())
        .control(control.clone())
        .build()
        .expect("a layer");
    let ann = Operator::new(Admin::new(&layer).control(&control));
    let log = logged_by_admin(async {
        ask_times(&layer, KEY, 2);
        control.ban("bans", KEY, minute).await.expect("made");
        let unban = json!({ "caller": KEY, "policy": "bans" });
        let detail = ann.denied("unban", unban, (503, "store-unavailable")).await;
        assert!(detail.contains("a part of it was changed before"));
    });
    assert_eq!(control.entries(), []);
    assert_one_line(&log, r#"action="unban"|not confirmed"#);
}

#[test]
fn what_has_no_effect_is_not_logged() {
    let (_, control, ann) = page([plan()]);
    let log = logged_by_admin(async {
        for path in ["reset", "unban", "clear-override"] {
            let body = json!({ "caller": KEY, "policy": "plan" });
            let made = ann.post(path, body).await;
            assert_eq!(made["changed"], false, "{path}");
        }
        ann.post("clear-mode", json!({ "policy": "plan" })).await;
        // No document takes a line break.
        for (reason, why) in [
            (KEY.repeat(30), "360 bytes; the longest has 256"),
            (format!("{KEY}\nban"), "control"),
        ] {
            let body = json!({ "caller": KEY, "policy": "plan", "for": "1h", "reason": reason });
            let detail = ann.denied("ban", body, (400, "malformed")).await;
            let is_why = detail.starts_with("reason: ") && detail.contains(why);
            assert!(is_why && !detail.contains(KEY), "{detail}");
        }
    });
    assert_eq!(log, [""; 0]);
    assert_eq!(control.entries(), []);
}

#[test]
fn a_change_is_made_and_logged_also_if_the_client_hangs_up() {
    let store = Slow::new(MemoryStore::new());
    let gate = Arc::clone(&store.gate);
    let limiter = Limiter::new(store, FixedWindow::per_day(2));
    let log = logged_by_admin(async {
        gate.add_permits(1);
        assert!(limiter.check(KEY).await.expect("a decision").is_allowed());
        let asked = post("/api/v1/reset", json!({ "caller": KEY })).request();
        let mut call = Box::pin(Operator::new(Admin::new(&limiter)).router().oneshot(asked));
        for _ in 0..10 {
            tokio::select! {
                biased;
                answer = &mut call => panic!("the store has not answered: {answer:?}"),
                () = yield_now() => {}
            }
        }
        drop(call);
        gate.add_permits(1_000_000);
        let is_over = || async { Handle::current().metrics().num_alive_tasks() == 0 };
        eventually_async("the change has ended", is_over).await;
        let peeked = limiter.peek(KEY).await.expect("a decision");
        assert_eq!(left_of(&peeked), [2]);
    });
    assert_one_line(&log, r#"action="reset""#);
}

#[test]
fn no_key_is_in_an_answer_or_in_the_log() {
    let (layer, control, ann) = page([plan()]);
    let mut answers = Vec::new();
    let log = logged(|| {
        ask_times(&layer, KEY, 3);
        runtime().block_on(async {
            let changes = changes().map(|(path, body)| (path, body.to_string()));
            let mut callers = vec![json!(KEY), json!([KEY, KEY]), json!({ KEY: KEY })];
            let kinds = "cookie:session= bearer: ip: fingerprint: number:";
            callers.extend(kinds.split(' ').map(|kind| json!(format!("{kind}{KEY}"))));
            let asked = callers
                .into_iter()
                .map(|caller| json!({ "caller": caller }));
            let asked = asked.chain([
                json!({ KEY: 1, "caller": "k1" }),
                json!({ "caller": KEY, "policy": KEY }),
                json!({ "caller": KEY, "limiter": KEY }),
                json!(KEY),
            ]);
            let asked = asked.map(|body| ("lookup", body.to_string()));
            let others = [
                ("lookup", format!("{{\"caller\": {KEY}}}")),
                ("mode", json!({ "policy": "plan", "mode": KEY }).to_string()),
            ];
            for (path, body) in changes.into_iter().chain(asked).chain(others) {
                answers.push(ann.call(path, body).await);
            }
            for path in ["status", "policies", "entries", "metrics", "top", "denials"] {
                answers.push(ann.read(path).await);
            }
        });
    });
    let wrong = answers.iter().filter(|answer| answer.status == 400);
    assert!(wrong.count() >= 8);
    let answers = answers.iter().map(|answer| format!("{answer:?}"));
    let entries = format!("{:?}", control.entries());
    for text in answers.chain(log).chain([entries]) {
        assert!(!text.contains(KEY), "{text}");
    }
}
