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

/// Reads a body as each call does. Returns the problems.
fn read_by_all(body: &[u8]) -> Vec<String> {
    let problems = ACTIONS.map(|action| read(body, action.row().1).err());
    let problems = problems.into_iter().flatten();
    problems.map(|problem| format!("{problem:?}")).collect()
}

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_json_makes_it_panic(body in any_json()) {
        read_by_all(body.to_string().as_bytes());
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(read_by_all(&body).len(), 7);
    }

    #[test]
    fn a_good_body_with_other_values_makes_no_panic_and_repeats_no_key(
        changes in prop::collection::vec((names(), any_json()), 0..3),
        at in any::<prop::sample::Index>(),
        byte in any::<Option<u8>>(),
    ) {
        let mut body = good();
        for (name, value) in changes {
            body[name] = value;
        }
        let mut text = body.to_string().into_bytes();
        if let Some(byte) = byte {
            let place = at.index(text.len());
            text[place] = byte;
        }
        for problem in read_by_all(&text) {
            prop_assert!(!problem.contains(KEY), "{problem}");
        }
    }
}

#[test]
fn a_problem_names_the_field_and_what_it_has_to_be() {
    let with = |fields: &str| format!(r#"{{"caller":"k1","policy":"p",{fields}}}"#);
    let quota = |fields: &str| with(&format!(r#""quota":"5 per second",{fields}"#));
    let hour = |fields: &str| quota(&format!(r#""for":"1h",{fields}"#));
    for (body, expected) in [
        ("", "no JSON object: EOF while parsing a value at line 1"),
        ("7", "no JSON object: expected a map"),
        (r#"{"policy":"a","policy":"b"}"#, "duplicate field `policy`"),
        (r#"{"policy":"plan"}"#, "missing field `caller`"),
        (
            r#"{"caller":7}"#,
            "`caller`: it has to be a text, or a list of texts",
        ),
        (r#"{"caller":[]}"#, "`caller`: it is empty"),
        (r#"{"caller":"ip:nowhere"}"#, "`caller`: "),
        (
            r#"{"caller":"header:x"}"#,
            "`caller`: one of them is no part of a request",
        ),
        (r#"{"caller":"k1"}"#, "missing field `policy`"),
        (
            r#"{"caller":"k1","policy":7}"#,
            "`policy`: expected a string",
        ),
        (r#"{"caller":"k1","policy":"p"}"#, "missing field `quota`"),
        (
            &with(r#""quota":"5 per moment""#),
            "`quota`: it is not understood from byte 6 on; write a text such as \"10 per second",
        ),
        (&quota(r#""reason":"r""#), "missing field `for`"),
        (
            &quota(r#""for":"1""#),
            "`for`: it is not understood from byte 0 on; write a text such as \"15 minutes",
        ),
        (&quota(r#""for":"0s""#), "`for`: end \"0s\": it is no time"),
        (
            &hour(r#""K1":"a""#),
            "expected one of `caller`, `policy`, `limiter`, `tier`, `quota`, `for`, `mode`, ",
        ),
        (
            &hour(r#""mode":"off""#),
            "`mode`: this call has no such field",
        ),
    ] {
        let problem = read(body.as_bytes(), Action::Override.row().1)
            .err()
            .expect("a problem");
        let found = problem.detail;
        assert!(found.contains(expected), "{body}: {found}");
        assert!(!found.contains("K1"), "{body}: {found}");
        assert_eq!(problem.code, Code::Malformed, "{body}");
    }
    let problem = read(br#"{"policy":"p"} 7"#, Action::ClearMode.row().1).err();
    let problem = problem.expect("a problem");
    assert!(
        problem
            .detail
            .starts_with("the body is no JSON object: trailing")
    );
    let problem = read(br#"{"policy":"p","mode":"loud"}"#, Action::Mode.row().1).err();
    let expected = "`mode`: expected one of `enforce`, `shadow`, `off`";
    assert!(problem.expect("a problem").detail.starts_with(expected));
}

#[test]
fn a_field_that_is_null_is_not_there() {
    let body = br#"{"caller":["header:x-api-key=k1","method:GET"],"policy":null,"tier":null}"#;
    let question = read(body, OF_CALLER).expect("a question");
    assert!(question.policy.is_none() && question.tier.is_none());
}
