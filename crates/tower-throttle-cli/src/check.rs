//! `check` and `schema`.

use std::path::Path;

use serde_json::{Value, json};
use tower_throttle_config::{Config, ConfigErrors, ReaderName};

use crate::{
    answer::{Answer, Failure, problems},
    arguments::Check,
    readers,
};

pub(crate) fn run(arguments: &Check) -> Result<Answer, Failure> {
    let answers = arguments.files.iter();
    let answers = answers.map(|file| one(file, arguments.readers.as_deref()));
    let mut answers: Vec<_> = answers.collect::<Result<_, _>>()?;
    match answers.pop() {
        Some(only) if answers.is_empty() => Ok(only),
        last => Ok(all(answers.into_iter().chain(last))),
    }
}

/// Joins the answers about several files.
fn all(answers: impl Iterator<Item = Answer>) -> Answer {
    let mut all = Answer::fine("", json!([]));
    for answer in answers {
        for (text, one) in [
            (&mut all.text, answer.text),
            (&mut all.problems, answer.problems),
        ] {
            if !text.is_empty() && !one.is_empty() {
                text.push('\n');
            }
            text.push_str(&one);
        }
        if let Value::Array(list) = &mut all.json {
            list.push(answer.json);
        }
        all.is_fine &= answer.is_fine;
    }
    all
}

fn one(file: &Path, readers: Option<&[String]>) -> Result<Answer, Failure> {
    let config = match Config::from_path(file) {
        Ok(config) => config,
        Err(errors) if is_unreadable(&errors) => return Err(errors.into()),
        Err(errors) => return Ok(wrong(&errors)),
    };
    let named = config.reader_names();
    let registered = match readers {
        None => named.clone(),
        Some(texts) => texts
            .iter()
            .map(|text| reader(text))
            .collect::<Result<_, _>>()?,
    };
    let config = config.readers(readers::stand_ins(&registered));
    match config.check() {
        Ok(()) => Ok(right(file, &config, &named)),
        Err(errors) => Ok(wrong(&errors)),
    }
}

pub(crate) fn schema() -> Answer {
    let schema = Config::json_schema();
    let json = serde_json::from_str(&schema).unwrap_or(Value::Null);
    Answer::fine(schema, json)
}

/// Reads `key:tenant`.
fn reader(text: &str) -> Result<ReaderName, Failure> {
    let reader = text
        .split_once(':')
        .and_then(|(kind, name)| ReaderName::new(kind, name));
    reader.ok_or_else(|| {
        let kinds = ReaderName::KINDS.join(", ");
        Failure::new(format!(
            "--readers: {text:?} is no reader; write KIND:NAME with one of {kinds}"
        ))
    })
}

fn is_unreadable(errors: &ConfigErrors) -> bool {
    let mut problems = errors.problems().iter();
    problems.any(|problem| problem.code() == "file-unreadable")
}

fn wrong(errors: &ConfigErrors) -> Answer {
    Answer {
        text: String::new(),
        problems: errors.to_string(),
        json: json!({ "ok": false, "problems": problems(errors) }),
        is_fine: false,
    }
}

fn right(file: &Path, config: &Config, named: &[ReaderName]) -> Answer {
    let file = file.display();
    let names = config.names();
    let (policies, layers, limiters) = (&names.policies, &names.layers, &names.limiters);
    let mut text = format!(
        "{file}: ok, {}, {}, {}",
        count(policies, "policy", "policies"),
        count(layers, "layer", "layers"),
        count(limiters, "limiter", "limiters"),
    );
    for ReaderName { kind, name, .. } in named {
        text.push_str(&format!("\nneeds: {kind} reader `{name}`"));
    }
    let named = named.iter();
    let needs = named.map(|ReaderName { kind, name, .. }| json!({ "kind": kind, "name": name }));
    let json = json!({
        "ok": true,
        "problems": [],
        "policies": policies,
        "layers": layers,
        "limiters": limiters,
        "needs": needs.collect::<Vec<_>>(),
    });
    Answer::fine(text, json)
}

fn count(names: &[String], one: &str, several: &str) -> String {
    match names.len() {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }
}
