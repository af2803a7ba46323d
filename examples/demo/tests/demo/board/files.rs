//! The board and the alert rules.

use std::{fs, path::PathBuf};

use serde_json::Value;

/// An expression, where it is, and the labels of its result that are shown.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) place: String,
    pub(super) expression: String,
    pub(super) shown: Vec<String>,
}

pub(super) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/grafana")
        .join(file)
}

pub(super) fn text(file: &str) -> String {
    fs::read_to_string(path(file)).expect(file)
}

pub(super) fn board() -> Value {
    serde_json::from_str(&text("tower-throttle.json")).expect("JSON")
}

/// Returns the elements of an array, which is not empty.
#[track_caller]
pub(super) fn all<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    let found = value[name].as_array().expect(name);
    assert!(!found.is_empty(), "{name} is empty");
    found
}

#[track_caller]
pub(super) fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    let found = value[name].as_str();
    found.unwrap_or_else(|| panic!("{name} is no text in {value}"))
}

/// Returns the panels of a board that draw, without the headings.
pub(super) fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    let panels = all(board, "panels").iter();
    panels.filter(|panel| panel["type"] != "row")
}

pub(super) fn queries_of_board(board: &Value) -> Vec<Query> {
    let queries = panels(board).flat_map(|panel| {
        let targets = all(panel, "targets").iter();
        targets.map(|target| Query {
            place: format!("the panel {}", panel["title"]),
            expression: word(target, "expr").to_owned(),
            shown: labels_behind("{{", word(target, "legendFormat")),
        })
    });
    queries.collect()
}

/// Returns the variables of the board that ask Prometheus, each with its metric or selector and
/// its label.
pub(super) fn variables(board: &Value) -> Vec<(&str, &str, &str)> {
    let variables = all(&board["templating"], "list").iter();
    let variables = variables.filter(|variable| variable["type"] == "query");
    let variables = variables.map(|variable| {
        let query = word(&variable["query"], "query");
        let inside = query.strip_prefix("label_values(");
        let inside = inside.and_then(|inside| inside.strip_suffix(')'));
        let (selector, label) = inside.expect(query).rsplit_once(", ").expect(query);
        (word(variable, "name"), selector, label)
    });
    variables.collect()
}

/// Returns the alerts, each with its lines.
pub(super) fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let alerts = rules.split("- alert: ").skip(1);
    let alerts = alerts.map(|alert| alert.split_once('\n').expect("more lines"));
    let alerts: Vec<_> = alerts.collect();
    assert!(!alerts.is_empty());
    alerts
}

/// Returns the value of a field that has a line of its own.
#[track_caller]
pub(super) fn field<'a>(lines: &'a str, name: &str) -> &'a str {
    let mut values = lines.lines().filter_map(|line| {
        let value = line.trim().strip_prefix(name)?.strip_prefix(": ")?;
        Some(value.trim_matches('\''))
    });
    let value = values
        .next()
        .unwrap_or_else(|| panic!("no {name} in {lines}"));
    assert!(value.len() > 1, "{name} is empty in {lines}");
    value
}

pub(super) fn queries_of_rules(rules: &str) -> Vec<Query> {
    let alerts = alerts(rules).into_iter();
    let queries = alerts.map(|(alert, lines)| Query {
        place: format!("the alert {alert}"),
        expression: field(lines, "expr").to_owned(),
        shown: labels_behind("$labels.", lines),
    });
    queries.collect()
}

/// Returns the series that the tests of the rules are fed with.
pub(super) fn queries_of_tests(tests: &str) -> Vec<Query> {
    let lines = tests.lines().map(str::trim);
    let series = lines.filter_map(|line| line.strip_prefix("- series: "));
    let queries = series.map(|series| Query {
        place: "the tests of the rules".to_owned(),
        expression: series.trim_matches('\'').to_owned(),
        shown: Vec::new(),
    });
    queries.collect()
}

/// Returns each word behind a mark.
fn labels_behind(mark: &str, text: &str) -> Vec<String> {
    let behind = text.split(mark).skip(1);
    let labels = behind.filter_map(|rest| {
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_')?;
        Some(rest[..end].to_owned())
    });
    labels.collect()
}

/// Returns the names behind `$`.
pub(super) fn variables_in(expression: &str) -> Vec<&str> {
    let behind = expression.split('$').skip(1);
    let names = behind.map(|rest| {
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    names.collect()
}
