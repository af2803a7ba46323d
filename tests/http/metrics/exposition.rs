//! The text formats, read back by a strict parser.

use tower_throttle::{
    LimiterBuilder,
    metrics::{self, Snapshot},
};

use super::{counted, counts};
use crate::prelude::*;

/// The samples of a text, by name and labels, and its families with their types.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) samples: BTreeMap<(String, Vec<(String, String)>), f64>,
    families: BTreeMap<String, String>,
}

/// Reads a text of metrics. Each family has a `HELP` and a `TYPE` line in front of all of its
/// samples, and no series is there twice.
#[track_caller]
pub(super) fn parse(text: &str, is_openmetrics: bool) -> Parsed {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut lines: Vec<&str> = text.lines().collect();
    if is_openmetrics {
        assert_eq!(lines.pop(), Some("# EOF"));
    }
    let mut parsed = Parsed::default();
    let mut lines = lines.into_iter().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").expect("the start of a family");
        let (family, help) = help.split_once(' ').expect("a help");
        assert!(!help.is_empty());
        let line = lines.next().expect("a type");
        let kind = line.strip_prefix("# TYPE ").expect("a type");
        let (typed, kind) = kind.split_once(' ').expect("a type");
        assert_eq!(typed, family);
        let before = parsed.families.insert(family.to_owned(), kind.to_owned());
        assert_eq!(before, None, "{family} is there twice");
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (name, labels, value) = sample(line);
            let suffixes: &[&str] = match (kind, is_openmetrics) {
                ("counter", true) => &["_total"],
                ("histogram", _) => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            let suffix = name.strip_prefix(family).expect("a name of the family");
            assert!(suffixes.contains(&suffix), "{line}");
            let value = value.parse().expect("a number");
            let before = parsed.samples.insert((name, labels), value);
            assert_eq!(before, None, "{line} is there twice");
        }
    }
    parsed
}

/// Reads a line as `name{label="value",other="value"} 1`.
fn sample(line: &str) -> (String, Vec<(String, String)>, &str) {
    let is_of_a_name = |next: char| next.is_ascii_alphanumeric() || next == '_';
    let (name, rest) = line.split_once('{').expect("labels");
    assert!(name.chars().all(is_of_a_name), "{line}");
    let (mut rest, mut labels) = (rest, Vec::new());
    loop {
        let (label, value) = rest.split_once("=\"").expect("a label");
        assert!(label.chars().all(is_of_a_name), "{line}");
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().expect("the end of a value") {
                (end, '"') => break end,
                (_, '\\') => text.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, next @ ('\\' | '"'))) => next,
                    other => panic!("no escape: {other:?} in {line}"),
                }),
                (_, '\n') => panic!("a line ends within a value"),
                (_, next) => text.push(next),
            }
        };
        labels.push((label.to_owned(), text));
        rest = &value[end + 1..];
        if let Some(value) = rest.strip_prefix("} ") {
            return (name.to_owned(), labels, value);
        }
        rest = rest.strip_prefix(',').expect("another label");
    }
}

/// Returns the samples that are not 0, as [`counted`] has them.
fn by_what_they_count(parsed: &Parsed, limiter: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for ((name, labels), count) in &parsed.samples {
        let labels = labels.iter().map(|(label, value)| (&**label, &**value));
        let (of, what) = match (&**name, &labels.collect::<Vec<_>>()[..]) {
            ("tower_throttle_requests_total", [("limiter", of), ("result", result)]) => {
                (*of, (*result).to_owned())
            }
            ("tower_throttle_decisions_total", [("limiter", of), ("source", source)]) => {
                (*of, format!("by {source}"))
            }
            (
                "tower_throttle_checks_total",
                [("limiter", of), ("policy", policy), ("result", result)],
            ) => (*of, format!("{policy}: {result}")),
            // The waits and the store, which other tests read.
            _ => continue,
        };
        if of == limiter && *count > 0.0 {
            counts.insert(what, *count as u64);
        }
    }
    counts
}

/// The only families of a layer or limiter in memory. `suffix`: that of counters.
#[track_caller]
fn assert_families(parsed: &Parsed, suffix: &str) {
    let expected = [
        (
            "bans checks decisions requests settlements store_failures",
            suffix,
            "counter",
        ),
        (
            "held_units local_buckets memory_buckets store_up unsettled_units waiting",
            "",
            "gauge",
        ),
        ("wait_seconds", "", "histogram"),
    ];
    let expected = expected.into_iter().flat_map(|(names, suffix, kind)| {
        let names = names.split(' ');
        names.map(move |name| (format!("tower_throttle_{name}{suffix}"), kind.to_owned()))
    });
    assert_eq!(parsed.families, expected.collect());
}

/// How many series a limiter has beside those of its policies: results, sources, and waits in 15
/// ranges with their sum, their count and how many wait now.
pub(super) const OF_LIMITER: usize = 11 + 6 + 15 + 3;
/// How many series a policy has: its results, and the bans that it started.
pub(super) const OF_POLICY: usize = 7 + 1;
/// How many series a store in memory has: kinds of failures, results of settlements, and gauges.
pub(super) const OF_MEMORY: usize = 9 + 5 + 5;

const ODD: &str = r#"a "quoted" \name\ {with=braces}, and # more"#;

fn odd_layer() -> RateLimitLayer {
    let odd = Policy::new(ODD, TokenBucket::per_minute(10)).shared();
    let builder = RateLimitLayer::builder().name(ODD).policy(odd);
    let layer = builder.policy(api()).build().expect("a layer");
    for (cost, status) in [(1, 200), (100, 429), (101, 403)] {
        assert_eq!(ask(&layer, get([("api", cost)])).status, status);
    }
    layer
}

#[test]
fn both_formats_have_all_numbers_of_a_snapshot() {
    let seen = odd_layer().metrics();
    for (text, is_openmetrics) in [(seen.to_prometheus(), false), (seen.to_openmetrics(), true)] {
        let parsed = parse(&text, is_openmetrics);
        assert_families(&parsed, if is_openmetrics { "" } else { "_total" });
        assert_eq!(by_what_they_count(&parsed, ODD), counted(&seen));
        // Also those that are 0, so that a rate can be taken from the start.
        let expected = OF_LIMITER + 2 * OF_POLICY + OF_MEMORY;
        assert_eq!(parsed.samples.len(), expected);
    }
}

#[test]
fn several_snapshots_share_each_family_and_equal_names_are_added_up() {
    let (odd, other) = (odd_layer().metrics(), odd_layer().metrics());
    let counted_by = |builder: LimiterBuilder, policy: &str| {
        let builder = builder.policy(Policy::new(policy, TokenBucket::per_minute(1)));
        let limiter = builder.build().expect("a limiter");
        assert!(limiter.check_now("ann").is_ok());
        limiter.metrics()
    };
    let one = counted_by(Limiter::builder(), "one");
    let two = counted_by(Limiter::builder().name("default"), "two");
    let (all, none): (_, [&Snapshot; 0]) = ([&odd, &one, &other, &two], []);
    for (text, empty, is_openmetrics) in [
        (
            metrics::to_prometheus(all),
            metrics::to_prometheus(none),
            false,
        ),
        (
            metrics::to_openmetrics(all),
            metrics::to_openmetrics(none),
            true,
        ),
    ] {
        let parsed = parse(&text, is_openmetrics);
        assert_families(&parsed, if is_openmetrics { "" } else { "_total" });
        let twice = counted(&odd).into_iter();
        let twice = twice.map(|(what, count)| (what, 2 * count));
        assert_eq!(by_what_they_count(&parsed, ODD), twice.collect());
        let expected = counts("allowed 2, by store 2, one: near 1, two: near 1");
        assert_eq!(by_what_they_count(&parsed, "default"), expected);
        assert!(parse(&empty, is_openmetrics).samples.is_empty());
    }
}

#[test]
fn names_of_layers_and_limiters_follow_the_rules_of_policy_names() {
    let layer = |name: &str| RateLimitLayer::builder().policy(api()).name(name).build();
    let limiter = |name: &str| {
        Limiter::builder()
            .policy(TokenBucket::per_minute(1))
            .name(name)
            .build()
    };
    let too_long = "x".repeat(65);
    for name in ["", "tab\t", "line\n", "caf\u{e9}", "\u{7f}", &too_long] {
        let start = format!("limiter name {name:?} is not 1 to 64");
        assert_config_error(layer(name), "limiter-name", &start);
        assert_config_error(limiter(name), "limiter-name", &start);
    }
    for name in [" ", "\"", "\\", "~", &"x".repeat(64)] {
        let seen = layer(name).expect("a layer").metrics();
        assert_eq!(seen.limiter(), name);
        let expected = OF_LIMITER + OF_POLICY + OF_MEMORY;
        assert_eq!(parse(&seen.to_prometheus(), false).samples.len(), expected);
    }
}
