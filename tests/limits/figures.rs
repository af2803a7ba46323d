//! Each figure of the benchmark that a page or a picture states is the one in
//! `docs/lab/results.md`. A comment behind it names the column and the row:
//! `0.57 µs<!-- p50 of memory: one caller, allowed, 1 thread / tower_governor -->`.

use std::{collections::HashMap, env, fs};

use crate::docs_consistency::{files, read, root};

/// Figures of other origin, or that follow from the results, by words of the line.
const OTHERS: [(&str, &str); 7] = [
    ("docs/errors.md", "(2^53 ns"),
    ("docs/sizing.md", "for each call and"),
    ("docs/sizing.md", "µs × *C*"),
    ("docs/sizing.md", "[add 5 µs"),
    ("docs/sizing.md", "50,000 × "),
    ("docs/sizing.md", "AMD EPYC took"),
    ("docs/sizing.md", "of a faster machine"),
];

/// The cells of each row, by its work and the name beside it.
struct Results(HashMap<String, [String; 7]>);

const COLUMNS: [&str; 7] = [
    "value of",
    "value beside",
    "ratio of",
    "p50 of",
    "p50 beside",
    "p99 of",
    "p99 beside",
];

impl Results {
    fn read() -> Self {
        let page = read("docs/lab/results.md");
        let mut rows = HashMap::new();
        let lines = page.lines().filter(|line| line.starts_with("| "));
        for line in lines.skip(1) {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [work, ours, beside, ratio, p50s, p99s, ..] = cells[..] else {
                panic!("{line}");
            };
            let (name, beside) = beside.rsplit_once(": ").expect("a name and a figure");
            let pair = |cell: &str| {
                let (ours, beside) = cell.split_once(" / ").unwrap_or_default();
                [ours.to_owned(), beside.to_owned()]
            };
            let ([p50, p50_beside], [p99, p99_beside]) = (pair(p50s), pair(p99s));
            let [ours, beside, ratio] = [ours, beside, ratio].map(str::to_owned);
            let figures = [ours, beside, ratio, p50, p50_beside, p99, p99_beside];
            let before = rows.insert(format!("{work} / {name}"), figures);
            assert!(before.is_none(), "two rows of {work} beside {name}");
        }
        Self(rows)
    }

    /// Returns the figure that a comment names. `None`: the comment is about something else.
    fn figure(&self, comment: &str) -> Option<&str> {
        let mut columns = COLUMNS.iter().enumerate();
        let (column, row) = columns.find_map(|(at, name)| {
            let row = comment.strip_prefix(name)?;
            Some((at, row.strip_prefix(' ')?))
        })?;
        let row = self.0.get(row);
        let row = row.unwrap_or_else(|| panic!("docs/lab/results.md has no row for {comment}"));
        Some(&row[column])
    }

    /// Returns a text with the figures of these results.
    fn apply(&self, mut text: &str) -> String {
        let mut applied = String::new();
        while let Some((before, rest)) = text.split_once("<!-- ") {
            let (comment, rest) = rest.split_once(" -->").expect("the end of a comment");
            let (words, _) = split_figure(before);
            match self.figure(comment) {
                Some(figure) => applied.extend([words, figure]),
                None => applied.push_str(before),
            }
            applied.extend(["<!-- ", comment, " -->"]);
            text = rest;
        }
        applied + text
    }
}

const UNITS: [&str; 5] = [" µs", " ns", "/s", "%", ""];

/// Splits a text before the number at its end, which may have a unit.
fn split_figure(text: &str) -> (&str, &str) {
    let units = UNITS.iter().filter_map(|unit| text.strip_suffix(unit));
    let number = units.min_by_key(|text| text.len()).unwrap_or(text);
    let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == ',';
    text.split_at(number.trim_end_matches(is_digit).len())
}

/// Returns the lines of a page that state a figure like those of the benchmark and name no row.
fn unnamed(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for unit in [" µs", " ns", "/s"] {
        for (at, _) in page.match_indices(unit) {
            let (before, after) = page.split_at(at + unit.len());
            let (_, figure) = split_figure(before);
            // A quota is below 1,000 requests a second.
            let is_measured = match unit {
                "/s" => figure.contains(','),
                _ => figure != unit && !after.starts_with(char::is_alphanumeric),
            };
            if is_measured && !after.starts_with("<!-- ") {
                let start = before.rfind('\n').map_or(0, |end| end + 1);
                found.extend(page[start..].lines().next());
            }
        }
    }
    found
}

#[test]
fn pages_and_pictures_state_the_figures_of_the_results() {
    let results = Results::read();
    let pages = files(root(), ".md").into_iter();
    for path in pages.chain(files(&root().join("docs/images"), ".svg")) {
        let text = read(&path);
        let applied = results.apply(&text);
        if env::var_os("TT_WRITE").is_some() && applied != text {
            fs::write(&path, &applied).expect("the page");
            continue;
        }
        for (is, ought) in text.lines().zip(applied.lines()) {
            let path = path.display();
            assert_eq!(
                is, ought,
                "{path}: TT_WRITE=1 takes the figure of the results"
            );
        }
    }
}

#[test]
fn a_figure_of_the_benchmark_names_its_row() {
    let mut others = OTHERS.to_vec();
    let pages = files(&root().join("docs"), ".md").into_iter();
    let pages = pages.chain(files(&root().join("crates"), "README.md"));
    for path in pages.chain([root().join("README.md")]) {
        let page = path.strip_prefix(root()).expect("a page");
        let page = page.display().to_string();
        if page.starts_with("docs/lab/") {
            continue;
        }
        for line in unnamed(&read(&path)) {
            let is_other = |(other, words): &(&str, &str)| page == *other && line.contains(words);
            assert!(OTHERS.iter().any(is_other), "{page}: {line}");
            others.retain(|other| !is_other(other));
        }
    }
    assert!(
        others.is_empty(),
        "no page states these any more: {others:?}"
    );
}

/// The plan for a fleet follows from what Redis takes for a call and for a decision.
#[test]
fn the_page_on_sizing_computes_with_the_results() {
    let results = Results::read();
    let us = |checks: u64| {
        let of_one = format!("Lua: CPU time of the server for one decision, {checks} in a call");
        let figure = results.figure(&format!("value of {of_one} / no command"));
        let text = figure.and_then(|figure| figure.strip_suffix(" µs"));
        text.and_then(|text| text.parse::<f64>().ok())
            .expect("a time")
    };
    let decision = us(128).round();
    let call = (us(1) - us(128)).round();
    let load = |calls: f64, decisions: f64| (calls * call + decisions * decision) / 1e6;
    let per_cent = |cores: f64| format!("{:.0}%", 100.0 * cores);
    let thousands = |checks: f64| format!("{:.0},000 checks", (checks / 1e3).floor());
    let plan = thousands(0.6 / load(1.0, 1.0));

    let words = |page: &str| read(page).split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = words("README.md");
    assert!(
        readme.contains(&format!("plan [{plan} a second]")),
        "{plan}"
    );
    let page = words("docs/sizing.md");
    let (all, flood) = (load(5e4, 1e5), load(3e3, 6e3));
    let primaries = (all / 0.6).ceil();
    let (shared, leased) = (load(5e4, 5e4), load(7_500.0, 7_500.0));
    for promise in [
        format!("That is {plan} of one policy a second"),
        format!("{call} µs for each call and {decision} µs for each decision"),
        format!("50,000 × {call} µs + 100,000 × {decision} µs = {all:.2} cores"),
        format!("primaries, at {} each", per_cent(all / primaries)),
        format!("6,000 decisions: {} of a core", per_cent(flood)),
        format!("to one of the primaries: {} of a core", per_cent(shared)),
        format!("7,500 calls, or {}", per_cent(leased)),
        format!(
            "the sum is then {}",
            per_cent(all / (primaries + 1.0) + leased)
        ),
    ] {
        assert!(page.contains(&promise), "{promise:?} is not on the page");
    }
}
