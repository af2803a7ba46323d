//! `docs/admin-api.md`: its requests are accepted, and its answers have the fields of the true ones.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use super::{ask_times, plan};
use crate::operator::{self, Operator};

struct Section {
    method: Method,
    path: String,
    /// What `curl` sends.
    bodies: Vec<Value>,
    answer: Option<Value>,
    /// Whether its look-ups or policies lack fields.
    is_shortened: bool,
}

fn sections() -> Vec<Section> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin-api.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let sections = page.split("\n### ").skip(1);
    sections.map(section).collect()
}

fn section(text: &str) -> Section {
    let (heading, text) = text.split_once('\n').expect("a heading");
    let (method, path) = heading.split_once(' ').expect("a method");
    let text = text.split("\n## ").next().expect("a text");
    let blocks = |kind: &str| {
        let fence = format!("```{kind}\n");
        let rest: Vec<_> = text.split(&*fence).skip(1).collect();
        rest.into_iter()
            .map(|rest| rest.split("\n```").next().expect("an end").to_owned())
    };
    let json =
        |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let curl = blocks("sh").filter(|block| block.contains(" -d "));
    let bodies = curl.map(|block| {
        assert!(block.contains(path), "{block}");
        assert!(block.contains("-H 'x-tower-throttle: 1'"), "{block}");
        let body = block
            .split("-d '")
            .nth(1)
            .and_then(|rest| rest.split('\'').next());
        json(body.expect("a body"))
    });
    Section {
        method: method.parse().expect("a method"),
        path: path.to_owned(),
        bodies: bodies.collect(),
        answer: blocks("json").map(|block| json(&block)).next(),
        is_shortened: text.contains("shortened here"),
    }
}

/// Compares names of fields and kinds of values. `null` may stand for anything.
fn compare(written: &Value, answered: &Value, is_shortened: bool, path: &str) {
    match (written, answered) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(written), Value::Object(answered)) => {
            let names = |fields: &serde_json::Map<String, Value>| {
                fields.keys().cloned().collect::<BTreeSet<_>>()
            };
            let (names_written, names_answered) = (names(written), names(answered));
            match is_shortened {
                true => assert!(
                    names_written.is_subset(&names_answered),
                    "{path}: {names_written:?}"
                ),
                false => assert_eq!(names_written, names_answered, "{path}"),
            }
            for (name, value) in written {
                let path = format!("{path}.{name}");
                compare(value, &answered[name], is_shortened, &path);
            }
        }
        (Value::Array(written), Value::Array(answered)) => {
            if let (Some(written), Some(answered)) = (written.first(), answered.first()) {
                compare(written, answered, is_shortened, path);
            }
        }
        (Value::Number(written), Value::Number(answered)) => {
            assert_eq!(written.is_f64(), answered.is_f64(), "{path}: {answered}");
        }
        (Value::String(_), Value::String(_)) | (Value::Bool(_), Value::Bool(_)) => {}
        (written, answered) => panic!("{path}: {written} and {answered}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_of_the_api_has_the_fields_of_all_answers() {
    let (layer, _, ann) = super::page([plan()]);
    ask_times(&layer, "k1", 3);
    let ban = json!({ "caller": "k2", "policy": "plan", "for": "1h", "reason": "r", "label": "l" });
    ann.post("ban", ban).await;

    let sections = sections();
    for section in &sections {
        let path = section.path.strip_prefix("/api/v1/").expect("a call");
        let answers = match (&section.method, path) {
            (_, "samples") => vec![samples(&ann).await],
            (&Method::GET, path) => vec![ann.get(path).await],
            (_, path) => {
                let mut answers = Vec::new();
                for body in &section.bodies {
                    answers.push(ann.post(path, body.clone()).await);
                }
                assert!(!answers.is_empty(), "{path} has no example");
                answers
            }
        };
        let has_answer = section.answer.is_some() || section.method != Method::GET;
        assert!(has_answer, "{path} has no answer");
        for (written, answered) in section.answer.iter().zip(&answers) {
            assert!(answered != &json!([]), "{path}: nothing to compare");
            compare(written, answered, section.is_shortened, path);
        }
    }
}

/// The samples of two seconds.
async fn samples(ann: &Operator) -> Value {
    let router = ann.router();
    operator::samples(&router, "").await;
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    operator::samples(&router, "").await.into()
}

/// Every route is on the page, and the page has no other.
#[test]
fn the_page_of_the_api_lists_all_paths() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/mod.rs");
    let source = std::fs::read_to_string(source).expect("the routes");
    let routes = source.split(".route(\"/").skip(1);
    let routes: BTreeSet<_> = routes
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    let sections = sections();
    let written = sections
        .iter()
        .filter_map(|section| section.path.strip_prefix("/api/v1/"));
    let written: BTreeSet<_> = written.map(str::to_owned).collect();
    assert_eq!(written, routes);
    assert_eq!(written.len(), 15);
}
