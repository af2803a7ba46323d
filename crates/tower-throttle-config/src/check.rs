//! The check of a file against its [schema](super::schema), which finds all mistakes.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    place::FilePlace,
    problem::Problem,
    schema::{self, Form, kind, kinds},
    tables::VERSION,
    variables, wording,
};
use crate::suggest::{intended, is_word, proposal, quoted, unknown_policy};
use tower_throttle::{Quota, parse_duration};

/// The most mistakes that have a proposal, because finding one takes time.
const MOST_PROPOSALS: usize = 100;

/// Checks a whole file.
pub(super) fn check(file: &Value) -> Vec<Problem> {
    let mut check = Check {
        policies: Vec::new(),
        known: HashSet::new(),
        at: FilePlace::root(),
        problems: Vec::new(),
    };
    let version = &file["version"];
    if (version.is_u64() || version.is_i64()) && *version != VERSION {
        // Its other mistakes may be correct in that version.
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
            check.at = FilePlace::root().to("policy").to(&index).to("name");
            let message =
                format!("two policies named {name:?} would share their buckets; rename one");
            check.report("duplicate-policy", message);
        }
    }
    check.at = FilePlace::root();
    check.value(file, schema::root());
    check.problems
}

struct Check<'a> {
    /// The names of all policies of the file.
    policies: Vec<&'a str>,
    known: HashSet<&'a str>,
    /// The value that is checked.
    at: FilePlace,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn report(&mut self, code: &'static str, message: impl Into<String>) {
        let problem = Problem::new(&self.at, code, message.into());
        self.problems.push(problem);
    }

    /// Reports the name of a field of the table that is checked.
    fn report_name(&mut self, name: &str, code: &'static str, message: String) {
        let mut problem = Problem::new(&self.at.to(&name), code, message);
        problem.is_of_name = true;
        self.problems.push(problem);
    }

    fn proposal(&self, word: &str, among: &[&str]) -> String {
        match self.problems.len() < MOST_PROPOSALS {
            true => proposal(word, among),
            false => String::new(),
        }
    }

    fn value(&mut self, value: &Value, schema: &'static Value) {
        let forms = Form::all(schema);
        let fitting = forms.iter().filter(|form| form.is_for(value)).copied();
        let fitting: Vec<Form> = fitting.collect();
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
                    let (expected, fields) = (expected(), quoted(fields_of(form)));
                    let message =
                        format!("expected {expected} with {fields}, found a table without them");
                    return self.report("wrong-type", message);
                }
                if name == "ListedKeys" {
                    self.keys_of_policies(entries);
                }
                self.table(entries, form);
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Checks a table whose fields have the names of policies.
    fn keys_of_policies(&mut self, entries: &Map<String, Value>) {
        for name in entries.keys() {
            if !self.known.contains(&**name) {
                let proposal = self.proposal(name, &self.policies);
                let (code, message) = unknown_policy(name, &proposal);
                self.report_name(name, code, message);
            }
        }
    }

    fn number(&mut self, number: i128, form: &Value) {
        let bound = |name: &str| form[name].as_i64().map(i128::from);
        let (least, most) = (bound("minimum").unwrap_or_default(), bound("maximum"));
        if number < least || most.is_some_and(|most| number > most) {
            let most = most.map_or("or more".to_owned(), |most| format!("to {most}"));
            let message = format!("{number} is out of range; use {least} {most}");
            self.report("out-of-range", message);
        }
    }

    fn text(&mut self, text: &str, name: &str, form: &Value, forms: &[Form]) {
        let words: Vec<&str> = forms.iter().filter_map(Form::word).collect();
        let mistake = match name {
            "QuotaText" => {
                let error = text.parse::<Quota>().err();
                error.map(|error| (error.code(), wording::in_a_file(&error)))
            }
            "Time" => {
                let error = parse_duration(text).err();
                error.map(|error| (error.code(), error.message().to_owned()))
            }
            "Variables" => variables::expand(text, |_| Some(String::new())).err(),
            "PolicyName" if !self.known.contains(text) => {
                let proposal = self.proposal(text, &self.policies);
                Some(unknown_policy(text, &proposal))
            }
            _ if words.iter().any(|word| is_word(word, text)) => None,
            _ if !words.is_empty() => {
                let message = format!("unknown word {text:?}; {}", intended(&words, text));
                Some(("unknown-word", message))
            }
            _ if text.is_empty() && form.get("minLength").is_some() => return self.empty("text"),
            _ => None,
        };
        if let Some((code, message)) = mistake {
            self.report(code, message);
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
            let proposal = self.proposal(name, &known);
            let message = format!("unknown field {name:?}{proposal}");
            self.report_name(name, "unknown-field", message);
        }
        for name in texts(&form["required"]).filter(|name| !entries.contains_key(*name)) {
            match name {
                "policy" => self.no_policies(),
                name => {
                    let field = form["properties"].get(name).unwrap_or(&Value::Null);
                    let kinds = kinds(field, name);
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

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(Value::as_str)
}

/// Returns the field that each alternative requires.
fn required_by(alternatives: &Value) -> impl Iterator<Item = &str> {
    let alternatives = alternatives.as_array().into_iter().flatten();
    alternatives.flat_map(|one| texts(&one["required"]))
}

fn fields_of(form: &Value) -> impl Iterator<Item = &str> {
    let fields = form["properties"].as_object().into_iter().flatten();
    fields.map(|(name, _)| &**name)
}
