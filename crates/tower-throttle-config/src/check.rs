//! The check of a file against its [descriptor](super::descriptor), which finds all mistakes.

use std::collections::HashSet;

use super::{
    descriptor::VERSION,
    field::Field,
    form::{Form, Known, Need, Table, in_words},
    problem::{Code, ConfigProblem, Problems},
    tree::{Entry, Node, Value},
    variables,
    word::{Argument, Word},
};
use crate::suggest::{closest, proposal};
use tower_throttle::{FixedWindow, Limiter, Policy, Quota, parse_duration};

/// Checks a whole file.
pub(super) fn check(root: &Node, problems: &mut Problems) {
    let file = Field::root(root);
    if let Some(problem) = of_another_version(&file) {
        // Its other mistakes may be none in that version.
        problems.push(problem);
        return;
    }
    let policies = file.get("policy").map(|field| field.items());
    let policies = policies.iter().flatten();
    let names = policies.filter_map(|policy| policy.node.get("name")?.node.text());
    let mut check = Check {
        policies: names.collect(),
        problems,
    };
    check.value(&file);
}

fn of_another_version(file: &Field<'_>) -> Option<ConfigProblem> {
    let version = file.get("version")?;
    match version.node.value {
        Value::Whole(number) if number != i128::from(VERSION) => {
            let message = format!(
                "version {number} of the file is not known; this release reads version {VERSION}"
            );
            Some(version.problem(Code::Version, message))
        }
        _ => None,
    }
}

struct Check<'a> {
    /// The names of all policies of the file.
    policies: Vec<&'a str>,
    problems: &'a mut Problems,
}

impl Check<'_> {
    fn report(&mut self, field: &Field<'_>, code: Code, message: impl Into<String>) {
        self.problems.push(field.problem(code, message.into()));
    }

    fn value(&mut self, field: &Field<'_>) {
        let value = &field.node.value;
        let Some(form) = field.form.of(value) else {
            let expected = field.form.kind();
            let message = match value {
                Value::Nothing => format!("no value; write {expected}, or leave the field out"),
                value => format!("expected {expected}, found {}", value.kind()),
            };
            return self.report(field, Code::WrongType, message);
        };
        match (form, value) {
            (Form::Table(table), Value::Table(entries)) => self.table(field, table, entries),
            (Form::Map { form, .. }, Value::Table(entries)) => {
                self.duplicates(field, entries);
                self.not_empty(field, entries.is_empty(), "table");
                for entry in entries {
                    self.value(&field.inner(entry, form));
                }
            }
            (Form::Tables(_), Value::List(tables)) => self.tables(field, tables.is_empty()),
            (Form::List(_), Value::List(items)) => {
                self.not_empty(field, items.is_empty(), "list");
                for item in field.items() {
                    self.value(&item);
                }
            }
            (Form::Whole(least, most), Value::Whole(number))
                if !(i128::from(*least)..=i128::from(*most)).contains(number) =>
            {
                let is_below = *number < i128::from(*least);
                let range = match u32::try_from(*most) {
                    Err(_) if is_below => format!("{least} or more"),
                    _ => format!("{least} to {most}"),
                };
                let message = format!("{number} is out of range; use {range}");
                self.report(field, Code::OutOfRange, message);
            }
            (form, Value::Text(text)) => self.text(field, form, text),
            _ => {}
        }
    }

    fn text(&mut self, field: &Field<'_>, form: &'static Form, text: &str) {
        match form {
            Form::Text | Form::Reader(_) => self.not_empty(field, text.is_empty(), "text"),
            Form::WithVariables => {
                if let Err((code, message)) = variables::expand(text, |_| Some(String::new())) {
                    self.report(field, code, message);
                }
            }
            Form::Quota => {
                if let Err(error) = text.parse::<Quota>() {
                    self.problems.push(field.error(&error));
                }
            }
            Form::Duration => {
                if let Err(error) = parse_duration(text) {
                    self.problems.push(field.error(&error));
                }
            }
            Form::Words(words) if !words.iter().any(|word| word.find(text).is_some()) => {
                self.report(field, Code::UnknownWord, unknown_word(words, text));
            }
            Form::PolicyName if !self.policies.contains(&text) => {
                let proposal = proposal(text, &self.policies, "the policies are");
                let message = format!("no policy {text:?}{proposal}");
                self.report(field, Code::UnknownPolicy, message);
            }
            _ => {}
        }
    }

    fn not_empty(&mut self, field: &Field<'_>, is_empty: bool, what: &str) {
        if is_empty {
            let message = format!("this {what} is empty; fill it, or leave it out");
            self.report(field, Code::Empty, message);
        }
    }

    fn no_policies(&mut self, field: &Field<'_>) {
        let error = Limiter::builder().build().err();
        self.problems.extend(error.map(|error| field.error(&error)));
    }

    fn tables(&mut self, field: &Field<'_>, is_empty: bool) {
        if is_empty {
            self.no_policies(field);
        }
        let mut names = HashSet::new();
        for item in field.items() {
            self.value(&item);
            let Some(Entry { node, .. }) = item.node.get("name") else {
                continue;
            };
            let Some(name) = node.text() else {
                continue;
            };
            if !names.insert(name) {
                let policy = || Policy::new(name, FixedWindow::per_second(1));
                let twice = Limiter::builder().policy(policy()).policy(policy());
                let error = twice.build().err();
                let problem =
                    |error| ConfigProblem::of_error(node.place, item.path.clone(), &error);
                self.problems.extend(error.map(problem));
            }
        }
    }

    fn table(&mut self, field: &Field<'_>, table: &'static Table, entries: &[Entry]) {
        self.duplicates(field, entries);
        if !table.may_be_empty && !table.fields.iter().any(Known::is_needed) {
            self.not_empty(field, entries.is_empty(), "table");
        }
        for entry in entries {
            match table.field(&entry.name) {
                Some(known) => self.value(&field.inner(entry, known.form)),
                None => {
                    let message = unknown_field(table, &entry.name);
                    let problem = field.problem_at(entry.place, Code::UnknownField, message);
                    self.problems.push(problem);
                }
            }
        }
        self.needs(field, table, entries);
    }

    fn duplicates(&mut self, field: &Field<'_>, entries: &[Entry]) {
        let mut names = HashSet::new();
        for entry in entries {
            if !names.insert(&*entry.name) {
                let message = format!("{:?} is there twice; keep one", entry.name);
                let problem = field.problem_at(entry.place, Code::DuplicateField, message);
                self.problems.push(problem);
            }
        }
    }

    /// Reports fields that have to be there, or that exclude or need each other.
    fn needs(&mut self, field: &Field<'_>, table: &'static Table, entries: &[Entry]) {
        let entry = |name: &str| entries.iter().find(|entry| entry.name == name);
        let mut one: Option<&Known> = None;
        for known in table.fields {
            match (known.need, entry(known.name)) {
                (Need::Required, None) if matches!(known.form, Form::Tables(_)) => {
                    self.no_policies(field);
                }
                (Need::Required, None) => {
                    let form = known.form.kind();
                    let name = known.name;
                    let message = format!("the field {name:?} is missing; add it: {name} = {form}");
                    self.report(field, Code::MissingField, message);
                }
                (Need::One, Some(entry)) => match one {
                    None => one = Some(known),
                    Some(other) => {
                        let message = format!(
                            "{:?} and {:?} exclude each other; keep one",
                            other.name, known.name
                        );
                        let problem = field.problem_at(entry.place, Code::NotOne, message);
                        self.problems.push(problem);
                    }
                },
                (Need::Beside(others), Some(found))
                    if !others.iter().any(|other| entry(other).is_some()) =>
                {
                    let others = in_words(others.iter().map(|other| format!("{other:?}")));
                    let message = format!(
                        "{:?} is for {others}; add that, or leave it out",
                        known.name
                    );
                    let problem = field.problem_at(found.place, Code::Unused, message);
                    self.problems.push(problem);
                }
                _ => {}
            }
        }
        let choices = table.fields.iter().filter(|known| known.need == Need::One);
        if one.is_none() && choices.clone().next().is_some() {
            let choices = in_words(choices.map(|known| format!("{:?}", known.name)));
            let message = format!("one of {choices} is missing; add it");
            self.report(field, Code::NotOne, message);
        }
    }
}

fn unknown_field(table: &'static Table, name: &str) -> String {
    let names: Vec<&str> = table.fields.iter().map(|known| known.name).collect();
    let proposal = proposal(name, &names, "the fields are");
    format!("unknown field {name:?}{proposal}")
}

fn unknown_word(words: &'static [Word], text: &str) -> String {
    let lacks_argument = |word: &&Word| {
        let separator = [':', ' '];
        word.argument.is_some()
            && (text.starts_with(word.text) || text == word.text.trim_end_matches(separator))
    };
    if let Some(word) = words.iter().find(lacks_argument) {
        let argument = word.argument.map_or("", Argument::about);
        return format!(
            "{text:?} is no {:?}; write {argument} there",
            word.to_string()
        );
    }
    let (start, rest) = match text.rfind([':', ' ']) {
        Some(end) => text.split_at(end + 1),
        None => (text, ""),
    };
    match closest(start, words.iter().map(|word| word.text)) {
        Some(near) => {
            let near = format!("{near}{rest}");
            format!("unknown word {text:?}; did you mean {near:?}?")
        }
        None => {
            let words = in_words(words.iter().map(|word| format!("{:?}", word.to_string())));
            format!("unknown word {text:?}; use {words}")
        }
    }
}
