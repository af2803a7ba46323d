//! The text formats, read back by a strict parser.

use tower_throttle::{
    LimiterBuilder,
    metrics::{self, Snapshot},
};

use super::{counted, counts};
use crate::prelude::*;

/// The samples of a text by their series, and its families with their types.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) samples: BTreeMap<String, f64>,
    families: BTreeMap<String, String>,
}

/// Reads a text of metrics. Each family has a `HELP` and a `TYPE` line in front of all of its
/// samples, and no series is there twice. The demo has its metrics checked by Prometheus.
#[track_caller]
pub(super) fn parse(text: &str, is_openmetrics: bool) -> Parsed {
    assert!(text.ends_with('\n'), "the last line has no end");
    let (mut parsed, mut family) = (Parsed::default(), "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').expect("a help").0;
            let start = format!("# TYPE {family} ");
            let kind = lines.next().and_then(|line| line.strip_prefix(&start));
            let kind = kind.expect("a type").to_owned();
            let before = parsed.families.insert(family.to_owned(), kind);
            assert_eq!(before, None, "{family} is there twice");
        } else if is_openmetrics && line == "# EOF" {
            assert_eq!(lines.next(), None);
        } else {
            assert!(line.starts_with(family), "{line} in {family}");
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let value = value.parse().expect("a number");
            let before = parsed.samples.insert(series.to_owned(), value);
            assert_eq!(before, None, "{line} is there twice");
        }
    }
    parsed
}

/// Asserts that these are the only counts of a limiter that are not 0.
#[track_caller]
fn assert_counts(parsed: &Parsed, limiter: &str, counts: BTreeMap<String, u64>) {
    let quoted = |name: &str| format!("{:?}", name);
    let of = format!("{{limiter={}", quoted(limiter));
    let series = |what: &str| match what.rsplit_once(": ") {
        Some((policy, result)) => {
            let policy = quoted(policy);
            format!("checks_total{of},policy={policy},result=\"{result}\"}}")
        }
        None => match what.strip_prefix("by ") {
            Some(source) => format!("decisions_total{of},source=\"{source}\"}}"),
            None => format!("requests_total{of},result=\"{what}\"}}"),
        },
    };
    let counts = counts.into_iter();
    let expected: BTreeMap<_, _> = counts.map(|(what, count)| (series(&what), count)).collect();
    let found = parsed.samples.iter().filter_map(|(series, count)| {
        let series = series.strip_prefix("tower_throttle_")?;
        let families = ["checks", "decisions", "requests"];
        let is_one = families
            .iter()
            .any(|family| series.starts_with(&format!("{family}_total{of}")));
        (is_one && *count > 0.0).then(|| (series.to_owned(), *count as u64))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
}

/// The only families of a layer or limiter in memory. `suffix`: that of counters.
#[track_caller]
fn assert_families(parsed: &Parsed, suffix: &str) {
    let expected = [
        (
            "bans checks decisions requests settlements store_failures unread",
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

/// How many series a limiter has beside those of its policies: results, sources, addresses and costs
/// that cannot be read, and waits in 15 ranges with their sum, their count and how many wait now.
pub(super) const OF_LIMITER: usize = 11 + 6 + 2 + 15 + 3;
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
        assert_counts(&parsed, ODD, counted(&seen));
        // Also those that are 0, so that a rate can be taken from the start.
        let expected = OF_LIMITER + 2 * OF_POLICY + OF_MEMORY;
        assert_eq!(parsed.samples.len(), expected);
    }
}

#[test]
fn ten_thousand_callers_add_no_series() {
    let policy = Policy::new("api", TokenBucket::per_day(2)).key(key::header("x-api-key"));
    let layer = RateLimitLayer::new(policy);
    for caller in 0..10_000 {
        ask(&layer, get([("x-api-key", caller)]));
    }
    let parsed = parse(&layer.metrics().to_prometheus(), false);
    assert_eq!(parsed.samples.len(), OF_LIMITER + OF_POLICY + OF_MEMORY);
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
        assert_counts(&parsed, ODD, twice.collect());
        let expected = counts("allowed 2, by store 2, one: near 1, two: near 1");
        assert_counts(&parsed, "default", expected);
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
