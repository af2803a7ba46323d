//! No body makes the API panic, or repeat what was sent.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::{caller_change::CallerChange, look_up::Question, mode_change::ModeChange};

/// A key that is nowhere else.
const KEY: &str = "sk_live_4711";

/// Reads a body as each call does. Returns the problems.
fn read_by_all(body: &[u8]) -> Vec<String> {
    let callers = [
        Question::read(body).err(),
        CallerChange::reset(body).err(),
        CallerChange::ban(body).err(),
        CallerChange::unban(body).err(),
        CallerChange::set_quota(body).err(),
        CallerChange::clear_quota(body).err(),
        ModeChange::set(body).err(),
        ModeChange::clear(body).err(),
    ];
    let problems = callers.into_iter().flatten();
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
    const NAMES: [&str; 9] = [
        "caller", "policy", "limiter", "quota", "for", "until_ms", "mode", "reason", "label",
    ];
    prop_oneof![4 => prop::sample::select(&NAMES[..]).prop_map(str::to_owned), 1 => any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_json_makes_it_panic(body in any_json()) {
        read_by_all(body.to_string().as_bytes());
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(read_by_all(&body).len(), 8);
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

fn detail(body: &str, read: impl Fn(&[u8]) -> Option<Problem>) -> String {
    let problem = read(body.as_bytes()).expect("a problem");
    format!("{problem:?}")
}

#[test]
fn a_problem_names_the_field_and_what_is_wrong_with_it() {
    let long = "x".repeat(257);
    for (body, expected) in [
        ("", "no JSON: line 1"),
        ("{", "no JSON: line 1, column 1"),
        ("[]", "has to be a JSON object"),
        ("7", "has to be a JSON object"),
        (r#"{"policy":"a","policy":"b"}"#, "no field is twice"),
        (r#"{"policy":"plan"}"#, "`caller` is missing"),
        (
            r#"{"caller":7}"#,
            "`caller` has to be a text, or a list of texts",
        ),
        (
            r#"{"caller":["a",7]}"#,
            "`caller` has to be a text, or a list of texts",
        ),
        (r#"{"caller":[]}"#, "`caller` is empty"),
        (r#"{"caller":""}"#, "`caller` is empty"),
        (r#"{"caller":["",""]}"#, "`caller` is empty"),
        (r#"{"caller":"ip:nowhere"}"#, "`caller`: "),
        (
            r#"{"caller":"header:x"}"#,
            "`caller`: one of them is no part of a request",
        ),
        (r#"{"caller":"k1"}"#, "`policy` is missing"),
        (r#"{"caller":"k1","policy":null}"#, "`policy` is missing"),
        (r#"{"caller":"k1","policy":7}"#, "`policy` has to be a text"),
        (
            &format!(r#"{{"caller":"k1","policy":"{long}"}}"#),
            "`policy` has more than 64 bytes",
        ),
        (r#"{"caller":"k1","policy":"p"}"#, "`quota` is missing"),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per moment"}"#,
            "`quota`: the text is not understood from byte 6 on",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second"}"#,
            "`for` or `until_ms` is missing",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","for":1}"#,
            "`for` has to be a text",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","for":"1"}"#,
            "`for`: the text is not understood from byte 0 on",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","for":"0s"}"#,
            "`for` is no time",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","for":"1h","until_ms":1}"#,
            "exclude each other",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","until_ms":-1}"#,
            "`until_ms` has to be a whole number",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","until_ms":1.5}"#,
            "`until_ms` has to be a whole number",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","until_ms":18446744073709551615}"#,
            "`until_ms` has to be a whole number",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","for":"1h","reason":"a\nb"}"#,
            "`reason` has control characters",
        ),
        (
            &format!(
                r#"{{"caller":"k1","policy":"p","quota":"5 per second","for":"1h","label":"{long}"}}"#
            ),
            "`label` has more than 256 bytes",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","for":"1h","reasons":"a"}"#,
            "the field \\\"reasons\\\", which this call does not know",
        ),
        (
            r#"{"caller":"k1","policy":"p","quota":"5 per second","for":"1h","K1":"a"}"#,
            "a field, which this call does not know; it knows caller, policy",
        ),
    ] {
        let found = detail(body, |body| CallerChange::set_quota(body).err());
        assert!(found.contains(expected), "{body}: {found}");
        assert!(found.contains("Malformed"), "{body}: {found}");
    }
    let found = detail(r#"{"policy":"p","mode":"loud"}"#, |body| {
        ModeChange::set(body).err()
    });
    assert!(found.contains("`mode` has to be"), "{found}");
}

#[test]
fn a_long_key_and_many_parts_are_problems() {
    let text = |bytes: usize| json!({ "caller": "x".repeat(bytes) }).to_string();
    assert!(Question::read(text(4_096).as_bytes()).is_ok());
    let found = detail(&text(4_097), |body| Question::read(body).err());
    assert!(found.contains("KeyTooLong"), "{found}");
    let parts = |count: usize| json!({ "caller": vec!["x"; count] }).to_string();
    assert!(Question::read(parts(16).as_bytes()).is_ok());
    let found = detail(&parts(17), |body| Question::read(body).err());
    assert!(found.contains("more than 16 parts"), "{found}");
}

#[test]
fn a_body_that_is_very_deep_is_a_problem() {
    for body in [
        "[".repeat(8_000),
        format!("{{\"caller\":{}", "[".repeat(8_000)),
        "{\"a\":".repeat(3_000),
    ] {
        assert_eq!(read_by_all(body.as_bytes()).len(), 8);
    }
}
