//! Each name on the board and in the rules is one that the demo exports.

use std::{collections::BTreeSet, fs, sync::LazyLock};

use super::{
    export::Export,
    files::{
        Query, alerts, all, board, panels, path, queries_of_board, queries_of_rules,
        queries_of_tests, text, variables, variables_in, word,
    },
};

static EXPORT: LazyLock<Export> = LazyLock::new(Export::of_each_store);

/// The labels that Prometheus adds to what it scrapes.
const OF_THE_SCRAPE: [&str; 2] = ["job", "instance"];
/// The labels whose values users choose.
const CHOSEN: [&str; 3] = ["limiter", "policy", "store"];

/// Returns the metrics, labels and values that a query names and no export has.
fn mistakes(query: &Query) -> Vec<String> {
    let (mut mistakes, mut of_metrics) = (Vec::new(), Vec::new());
    for (at, _) in query.expression.match_indices("tower_throttle_") {
        let rest = &query.expression[at..];
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        let (metric, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let Some(labels) = EXPORT.labels_of(metric) else {
            mistakes.push(format!("no metric {metric}"));
            continue;
        };
        of_metrics.push(labels);
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = inside.map_or("", |(inside, _)| inside).split(',');
        for matcher in matchers
            .map(str::trim)
            .filter(|matcher| !matcher.is_empty())
        {
            let (label, values) = matcher.split_once('=').expect("a matcher");
            let label = label.trim_end_matches('!');
            let mut values = values.trim_start_matches('~').trim_matches('"').split('|');
            if OF_THE_SCRAPE.contains(&label) {
                continue;
            }
            let is_known = labels.get(label).is_some_and(|known| {
                CHOSEN.contains(&label) || values.all(|value| known.contains(value))
            });
            if !is_known {
                mistakes.push(format!("no {matcher} of {metric}"));
            }
        }
    }
    let kept = query.expression.split("by (").skip(1);
    let kept = kept.filter_map(|rest| rest.split_once(')'));
    let kept = kept.flat_map(|(labels, _)| labels.split(',').map(str::trim));
    let shown = query.shown.iter().map(String::as_str);
    for label in kept
        .chain(shown)
        .filter(|label| !OF_THE_SCRAPE.contains(label))
    {
        if label != "le" && !of_metrics.iter().all(|labels| labels.contains_key(label)) {
            mistakes.push(format!("no label {label}"));
        }
    }
    mistakes
}

#[test]
fn each_name_on_the_board_and_in_the_rules_is_exported() {
    let mut queries = queries_of_board(&board());
    queries.extend(queries_of_rules(&text("alerts.yml")));
    queries.extend(queries_of_tests(&text("alerts_test.yml")));
    let board = board();
    queries.extend(
        variables(&board)
            .into_iter()
            .map(|(name, selector, label)| Query {
                place: format!("${name}"),
                expression: selector.to_owned(),
                shown: vec![label.to_owned()],
            }),
    );
    for query in queries {
        assert_eq!(mistakes(&query), [""; 0], "{}", query.place);
        // Of a metric, of a value, and of a label.
        for (right, wrong) in [
            ("tower_throttle_", "tower_throttle_x"),
            ("result=\"", "result=\"x"),
            ("by (", "by (x"),
        ] {
            let expression = query.expression.replace(right, wrong);
            let is_other = expression != query.expression;
            let misspelt = Query {
                expression,
                ..query.clone()
            };
            assert_eq!(!mistakes(&misspelt).is_empty(), is_other, "{misspelt:?}");
        }
    }
}

#[test]
fn each_exported_metric_is_on_the_board() {
    let queries = queries_of_board(&board());
    for metric in EXPORT.metrics() {
        // Of a histogram, the average needs `_sum` and `_count`, and a quantile `_bucket`.
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| metric.strip_suffix(suffix));
        let start = family.map_or_else(|| format!("{metric}{{"), |family| format!("{family}_"));
        let mut queries = queries.iter();
        assert!(
            queries.any(|query| query.expression.contains(&start)),
            "{metric}"
        );
    }
}

#[test]
fn each_panel_has_a_place_and_says_what_it_shows() {
    let board = board();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in all(&board, "panels") {
        let title = word(panel, "title");
        assert!(
            ids.insert(panel["id"].as_u64()),
            "{title} has an id of another panel"
        );
        let place = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        let (left, top) = (place("x"), place("y"));
        assert!(left + place("w") <= 24, "{title} is too wide");
        for row in top..top + place("h") {
            for column in left..left + place("w") {
                assert!(cells.insert((row, column)), "{title} covers another panel");
            }
        }
    }
    for panel in panels(&board) {
        let title = word(panel, "title");
        assert!(word(panel, "description").ends_with('.'), "{title}");
        assert!(
            !word(&panel["fieldConfig"]["defaults"], "unit").is_empty(),
            "{title}"
        );
        for target in all(panel, "targets") {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            for variable in variables_in(word(target, "expr")) {
                let is_builtin = variable == "__rate_interval";
                let is_known = variables(&board).iter().any(|known| known.0 == variable);
                assert!(is_builtin || is_known, "{title}: ${variable}");
            }
        }
    }
}

#[test]
fn the_page_explains_each_alert() {
    let page = fs::read_to_string(path("../metrics.md")).expect("the page");
    for (alert, _) in alerts(&text("alerts.yml")) {
        assert!(page.contains(&format!("| `{alert}` |")), "{alert}");
    }
}
