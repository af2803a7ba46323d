//! No body makes the API panic, or repeat what was sent.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::changes::Action, *};

/// A key that is nowhere else.
const KEY: &str = "sk_live_4711";

const ACTIONS: [Action; 7] = [
    Action::Reset,
    Action::Ban,
    Action::Unban,
    Action::Override,
    Action::ClearOverride,
    Action::Mode,
    Action::ClearMode,
];

fn good() -> Value {
    json!({
        "caller": [KEY, "number:7"], "policy": "plan", "quota": "5 per second", "for": "1h",
        "reason": "a ticket", "label": "a name",
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!(KEY)),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((names(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn names() -> impl Strategy<Value = String> {
    let known = prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
    prop_oneof![8 => known, 1 => any::<String>(), 1 => Just(KEY.to_owned())]
}

/// JSON, bytes, and a good body with other values and perhaps another byte.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((names(), any_json()), 0..3);
    let byte = any::<Option<(prop::sample::Index, u8)>>();
    let changed = (changes, byte).prop_map(|(changes, byte)| {
        let mut body = good();
        for (name, value) in changes {
            body[name] = value;
        }
        let mut text = body.to_string().into_bytes();
        if let Some((at, byte)) = byte {
            *at.get_mut(&mut text) = byte;
        }
        text
    });
    prop_oneof![
        1 => any_json().prop_map(|json| json.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
        2 => changed,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_body_makes_a_call_panic_or_repeat_a_key(body in any_body()) {
        for action in ACTIONS {
            let problem = read(&body, action.row().1).err();
            let problem = format!("{problem:?}");
            prop_assert!(!problem.contains(KEY), "{problem}");
        }
    }
}

/// A call, a body without its braces, and what the problem says.
const PROBLEMS: &str = r#"
clear-mode     "policy":"p"} 7 => the body is no JSON object: trailing
mode           "policy":"p","mode":"loud" => `mode`: expected one of `enforce`, `shadow`, `off`
override       "policy":"a","policy":"b" => duplicate field `policy`
override       "policy":"plan" => missing field `caller`
override       "caller":7 => `caller`: it has to be a text, or a list of texts
override       "caller":[] => `caller`: no caller is named
override       "caller":"" => `caller`: it is empty; write a key such as
override       "caller":"text:" => `caller`: it is empty
override       "caller":["k1",""] => `caller`: it is empty
override       "caller":["header:x-api-key=","ip:192.0.2.1"] => `caller`: one of them is no part of a request
override       "caller":"ip:nowhere" => `caller`:
override       "caller":"header:x" => `caller`: one of them is no part of a request
override       "caller":"k1" => missing field `policy`
override       "caller":"k1","policy":7 => `policy`: expected a string
override       "caller":"k1","policy":"p" => missing field `quota`
override       "caller":"k1","policy":"p","quota":"5 per moment" => `quota`: it is not understood from byte 6 on; write a text such as "10 per second
override       "caller":"k1","policy":"p","quota":"5 per day","reason":"r" => missing field `for`
override       "caller":"k1","policy":"p","quota":"5 per day","for":"1" => `for`: it is not understood from byte 0 on; write a text such as "15 minutes
override       "caller":"k1","policy":"p","quota":"5 per day","for":"0s" => `for`: end "0s": it is no time
override       "caller":"k1","policy":"p","quota":"5 per day","for":"1h","K1":"a" => expected one of `caller`, `policy`, `limiter`, `tier`, `quota`, `for`, `mode`,
override       "caller":"k1","policy":"p","quota":"5 per day","for":"1h","mode":"off" => `mode`: this call has no such field
"#;

#[test]
fn a_problem_names_the_field_and_what_it_has_to_be() {
    let problem = |action: &str, body: &str| {
        let action = ACTIONS.into_iter().find(|one| one.row().0 == action);
        let (_, fields, _) = action.expect("an action").row();
        let problem = read(body.as_bytes(), fields).err();
        let problem = problem.expect("a problem");
        assert_eq!(problem.code, Code::Malformed, "{body}");
        problem.detail
    };
    for line in PROBLEMS.trim().lines() {
        let (action, rest) = line.split_once(' ').expect("a body");
        let (body, expected) = rest.trim().split_once(" => ").expect("a problem");
        let body = format!("{{{body}}}").replace(" 7}", " 7");
        let found = problem(action, &body);
        assert!(found.contains(expected), "{body}: {found}");
        assert!(!found.contains("K1"), "{body}: {found}");
    }
    let found = problem("ban", "");
    assert!(found.contains("no JSON object: EOF while parsing a value at line 1"));
    let found = problem("ban", "7");
    assert!(found.contains("no JSON object: expected a map"), "{found}");
}

#[test]
fn a_field_that_is_null_is_not_there() {
    let body = br#"{"caller":["header:x-api-key=k1","method:GET"],"policy":null,"tier":null}"#;
    let question = read(body, OF_CALLER).expect("a question");
    assert!(question.policy.is_none() && question.tier.is_none());
}
