//! Each name on the board and in the rules is one that the demo exports.

use std::{collections::BTreeSet, fs, sync::LazyLock};

use super::{
    export::Export,
    files::{
        Query, alerts, all, board, panels, path, queries_of_board, queries_of_rules,
        queries_of_tests, text, variables, variables_in, word,
    },
    promql::{CHOSEN, mistakes, tokens},
};

static EXPORT: LazyLock<Export> = LazyLock::new(Export::of_each_store);

/// Returns the mistakes of a query.
fn mistakes_of(query: &Query) -> Vec<String> {
    let shown: Vec<_> = query.shown.iter().map(String::as_str).collect();
    mistakes(&query.expression, &shown, &EXPORT)
}

fn all_queries() -> Vec<Query> {
    let mut queries = queries_of_board(&board());
    queries.extend(queries_of_rules(&text("alerts.yml")));
    queries.extend(queries_of_tests(&text("alerts_test.yml")));
    queries
}

#[test]
fn each_name_on_the_board_and_in_the_rules_is_exported() {
    for query in all_queries() {
        let found = mistakes_of(&query);
        assert!(found.is_empty(), "{}: {found:?}", query.place);
    }
    for (name, selector, label) in variables(&board()) {
        assert_eq!(mistakes(selector, &[label], &EXPORT), [""; 0], "${name}");
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

/// The comparison fails if any name, label or value has a letter more.
#[test]
fn a_misspelt_name_is_found() {
    let mut misspelt = 0;
    for query in all_queries() {
        for (at, what) in names(&query.expression) {
            let mut expression = query.expression.clone();
            expression.insert(at, 'x');
            let query = Query {
                expression,
                ..query.clone()
            };
            assert!(!mistakes_of(&query).is_empty(), "{what}: {query:?}");
            misspelt += 1;
        }
        for number in 0..query.shown.len() {
            let mut query = query.clone();
            query.shown[number].push('x');
            assert!(!mistakes_of(&query).is_empty(), "{query:?}");
            misspelt += 1;
        }
    }
    assert!(misspelt > 100, "{misspelt}");
}

/// Returns where each word and each value of an expression ends. Leaves out the values that
/// users choose.
fn names(expression: &str) -> Vec<(usize, &str)> {
    let tokens = tokens(expression);
    let mut names = Vec::new();
    for (number, token) in tokens.iter().enumerate() {
        let end = token.start + token.text.len();
        if token.is_word() {
            names.push((end, token.text));
        } else if let Some(values) = token.text.strip_prefix('"') {
            let label = tokens[number - 2].text;
            if !CHOSEN.contains(&label) {
                let ends = values.match_indices(['|', '"']);
                names.extend(ends.map(|(at, _)| (token.start + 1 + at, token.text)));
            }
        }
    }
    names
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
