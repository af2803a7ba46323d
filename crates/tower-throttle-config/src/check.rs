//! The check of a file against its [schema](super::schema), which finds all mistakes.

use std::{collections::HashSet, num::NonZero};

use serde_json::{Map, Value};

use super::{
    document::At,
    problem::Problem,
    schema::{self, Form, in_words, kinds},
    tables::VERSION,
    variables,
};
use crate::suggest::{closest, proposal};
use tower_throttle::{Quota, parse_duration};

/// So many mistakes have a proposal. To find one takes time.
const MOST_PROPOSALS: usize = 100;

/// Checks a whole file.
pub(super) fn check(file: &Value) -> Vec<Problem> {
    let mut check = Check {
        policies: Vec::new(),
        known: HashSet::new(),
        at: At::file(),
        problems: Vec::new(),
    };
    let version = &file["version"];
    if (version.is_u64() || version.is_i64()) && *version != VERSION {
        // Its other mistakes may be none in that version.
        check.at.enter("version");
        let message = format!(
            "version {version} of the file is not known; this release reads version {VERSION}"
        );
        check.report("file-version", message);
        return check.problems;
    }
    let policies = file["policy"].as_array().into_iter().flatten();
    for (index, policy) in policies.enumerate() {
        let Some(name) = policy["name"].as_str() else {
            continue;
        };
        check.policies.push(name);
        if !check.known.insert(name) {
            check.at = At::file().to("policy").to(index).to("name");
            let message =
                format!("two policies named {name:?} would share their buckets; rename one");
            check.report("duplicate-policy", message);
        }
    }
    check.at = At::file();
    check.value(file, schema::root());
    check.problems
}

struct Check<'a> {
    /// The names of all policies of the file.
    policies: Vec<&'a str>,
    known: HashSet<&'a str>,
    /// The value that is checked.
    at: At,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn report(&mut self, code: &'static str, message: impl Into<String>) {
        let problem = Problem::new(&self.at, code, message.into());
        self.problems.push(problem);
    }

    /// Reports the name of a field of the table that is checked.
    fn report_name(&mut self, name: &str, code: &'static str, message: String) {
        let problem = Problem::new(&self.at.to(name), code, message);
        self.problems.push(problem.of_name());
    }

    fn proposal(&self, word: &str, among: &[&str], they_are: &str) -> String {
        match self.problems.len() < MOST_PROPOSALS {
            true => proposal(word, among, they_are),
            false => String::new(),
        }
    }

    fn value(&mut self, value: &Value, schema: &'static Value) {
        let forms = Form::all(schema);
        let fitting: Vec<Form> = forms
            .iter()
            .filter(|form| form.is_for(value))
            .copied()
            .collect();
        let expected = || kinds(schema, self.at.field());
        let Some(Form { name, schema: form }) = fitting.first().copied() else {
            let message = format!("expected {}, found {}", expected(), kind(value));
            return self.report("wrong-type", message);
        };
        match value {
            Value::String(text) => self.text(text, name, form, &fitting),
            Value::Number(number) => self.number(number.as_i128().unwrap_or_default(), form),
            Value::Array(items) => self.list(items, form),
            Value::Object(entries) => {
                let is_other = |name: &String| form["properties"].get(name).is_none();
                if forms.len() > 1 && !entries.is_empty() && entries.keys().all(is_other) {
                    let fields = quoted(fields_of(form));
                    let message = format!(
                        "expected {} with {fields}, found a table without them",
                        expected()
                    );
                    return self.report("wrong-type", message);
                }
                self.table(entries, form);
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn number(&mut self, number: i128, form: &Value) {
        let bound = |name: &str| form[name].as_i64().map(i128::from);
        let (least, most) = (bound("minimum").unwrap_or_default(), bound("maximum"));
        match most {
            Some(most) if !(least..=most).contains(&number) => {
                let message = format!("{number} is out of range; use {least} to {most}");
                self.report("out-of-range", message);
            }
            None if number < least => {
                let message = format!("{number} is out of range; use {least} or more");
                self.report("out-of-range", message);
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str, name: &str, form: &Value, forms: &[Form]) {
        let words: Vec<&str> = forms.iter().filter_map(Form::word).collect();
        match name {
            "quota_text" => {
                let Err(error) = text.parse::<Quota>() else {
                    return;
                };
                let spelled: Vec<_> = text.split('/').map(str::trim).collect();
                let spelled = spelled.join(" per ");
                match spelled.parse::<Quota>() {
                    Ok(_) => {
                        let message = format!("{text:?} is no quota; did you mean {spelled:?}?");
                        self.report("quota-text", message);
                    }
                    Err(_) => self.problems.push(Problem::of_error(&self.at, &error)),
                }
            }
            "duration" => {
                if let Err(error) = parse_duration(text) {
                    self.problems.push(Problem::of_error(&self.at, &error));
                }
            }
            "variables" => {
                if let Err((code, message)) = variables::expand(text, |_| Some(String::new())) {
                    self.problems.push(Problem::new(&self.at, code, message));
                }
            }
            "policy_name" if !self.known.contains(text) => {
                let proposal = self.proposal(text, &self.policies, "the policies are");
                let message = format!("no policy {text:?}{proposal}");
                self.report("unknown-policy", message);
            }
            _ if !words.is_empty() => {
                if !words.iter().any(|word| is_word(word, text)) {
                    let message = format!("unknown word {text:?}; {}", intended(&words, text));
                    self.report("unknown-word", message);
                }
            }
            _ if text.is_empty() && form.get("minLength").is_some() => self.empty("text"),
            _ => {}
        }
    }

    fn empty(&mut self, what: &str) {
        let message = format!("this {what} is empty; fill it, or leave it out");
        self.report("empty-value", message);
    }

    fn no_policies(&mut self) {
        let message = "no policy; add at least one with `[[policy]]`";
        self.report("no-policies", message);
    }

    fn list(&mut self, items: &[Value], form: &'static Value) {
        match (items, self.at.field()) {
            ([], "policy") => self.no_policies(),
            ([], _) => self.empty("list"),
            _ => {}
        }
        for (index, item) in items.iter().enumerate() {
            self.inside(&index.to_string(), item, &form["items"]);
        }
    }

    /// Checks a value in the one that is checked.
    fn inside(&mut self, step: &str, value: &Value, schema: &'static Value) {
        self.at.enter(step);
        self.value(value, schema);
        self.at.leave();
    }

    fn table(&mut self, entries: &Map<String, Value>, form: &'static Value) {
        let choices: Vec<_> = required_by(&form["oneOf"]).collect();
        let is_needed = form.get("required").is_some() || !choices.is_empty();
        if entries.is_empty() && !is_needed && form["minProperties"] != 0 {
            self.empty("table");
        }
        let others = Some(&form["additionalProperties"]).filter(|schema| schema.is_object());
        for (name, value) in entries {
            if let Some(schema) = form["properties"].get(name).or(others) {
                self.inside(name, value, schema);
                continue;
            }
            let mut known: Vec<_> = fields_of(form).collect();
            known.sort_unstable();
            let proposal = self.proposal(name, &known, "the fields are");
            let message = format!("unknown field {name:?}{proposal}");
            self.report_name(name, "unknown-field", message);
        }
        for name in texts(&form["required"]).filter(|name| !entries.contains_key(*name)) {
            match name {
                "policy" => self.no_policies(),
                name => {
                    let kinds = kinds(&form["properties"][name], name);
                    let message =
                        format!("the field {name:?} is missing; add it: {name} = {kinds}");
                    self.report("missing-field", message);
                }
            }
        }
        let mut chosen = choices.iter().filter(|name| entries.contains_key(**name));
        match chosen.next() {
            None if choices.is_empty() => {}
            None => {
                let choices = quoted(choices.into_iter());
                let message = format!("one of {choices} is missing; add it");
                self.report("not-exactly-one", message);
            }
            Some(first) => {
                for other in chosen {
                    let message = format!("{first:?} and {other:?} exclude each other; keep one");
                    self.report_name(other, "not-exactly-one", message);
                }
            }
        }
        for (name, needed) in form["dependentSchemas"].as_object().into_iter().flatten() {
            let mut others = required_by(&needed["anyOf"]);
            if entries.contains_key(name) && !others.any(|other| entries.contains_key(other)) {
                let others = quoted(required_by(&needed["anyOf"]));
                let message = format!("{name:?} is for {others}; add that, or leave it out");
                self.report_name(name, "unused-field", message);
            }
        }
    }
}

/// Says what a value is, to people.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "a date",
        Value::Bool(true) => "`true`",
        Value::Bool(false) => "`false`",
        Value::Number(number) if number.as_f64() == Some(f64::MAX) => "a number that is too large",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str)
}

/// Returns the fields of which alternatives require one each.
fn required_by(alternatives: &Value) -> impl Iterator<Item = &str> {
    let alternatives = alternatives.as_array().into_iter().flatten();
    alternatives.flat_map(|one| texts(&one["required"]))
}

fn fields_of(form: &Value) -> impl Iterator<Item = &str> {
    let fields = form["properties"].as_object().into_iter().flatten();
    fields.map(|(name, _)| &**name)
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    in_words(names.map(|name| format!("{name:?}")))
}

/// Splits a word from its argument: `header:` from `NAME`.
fn split(word: &str) -> (&str, &str) {
    word.split_at(word.rfind([':', ' ']).map_or(word.len(), |end| end + 1))
}

fn is_word(word: &str, text: &str) -> bool {
    match (split(word), text.strip_prefix(split(word).0)) {
        ((_, ""), _) => word == text,
        ((_, "N"), Some(number)) => number.parse::<NonZero<u32>>().is_ok(),
        (_, argument) => argument.is_some_and(|argument| !argument.is_empty()),
    }
}

/// Says which of some words a text may be meant for.
fn intended(words: &[&str], text: &str) -> String {
    let (start, rest) = split(text);
    let near = closest(
        start,
        words
            .iter()
            .map(|word| split(word).0.trim_end_matches([':', ' '])),
    );
    let near = near.and_then(|near| words.iter().find(|word| word.starts_with(near)));
    match near.map(|word| (split(word), word)) {
        None => format!("use {}", quoted(words.iter().copied())),
        Some(((start, "NAME"), _)) if !rest.is_empty() => {
            format!("did you mean \"{start}{rest}\"?")
        }
        Some((_, word)) => format!("did you mean {word:?}?"),
    }
}
