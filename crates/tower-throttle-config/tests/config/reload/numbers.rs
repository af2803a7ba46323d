//! Counts and gauges from one version to the next.

use tower_throttle_config::Config;

use super::{ask_plainly, limits_of, parameter, policy, replace};
use crate::support::left_of;

fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {series} in {text}"));
    value.parse().expect("a number")
}

#[test]
fn counts_go_on_from_one_version_to_the_next() {
    let limits = limits_of(&policy("api", "1 per day, burst 10"));
    let layer = limits.layer("default").expect("a layer");
    ask_plainly(&layer);
    for (version, name) in [(2, "web"), (3, "api")] {
        replace(&limits, &policy(name, "1 per day, burst 10"));
        assert_eq!(layer.metrics().requests.allowed, version - 1);
        ask_plainly(&layer);
    }
    let text = limits.to_prometheus();
    let series = |name: &str| value(&text, name);
    let config = |name| series(&format!("tower_throttle_config_{name}{{file=\"none\"}}"));
    let checks =
        "tower_throttle_checks_total{limiter=\"default\",policy=\"api\",result=\"allowed\"}";
    assert_eq!(series(checks), 2.0);
    let requests = "tower_throttle_requests_total{limiter=\"default\",result=\"allowed\"}";
    assert_eq!(series(requests), 3.0);
    assert_eq!(config("version"), 3.0);
    assert_eq!(config("rejected"), 0.0);
    assert!(config("applied_timestamp_seconds") > 1.7e9);
    assert!(limits.to_openmetrics().ends_with("\n# EOF\n"));
}

#[test]
fn layers_come_and_go() {
    let limits = limits_of(&format!(
        "{}[layer.api]\n[limiter.jobs]\n",
        policy("api", "10 per day")
    ));
    let api = limits.layer("api").expect("a layer");
    let unknown = limits.layer("apo").expect_err("no layer").to_string();
    let expected = r#"the file has no layer "apo"; did you mean "api"?"#;
    assert_eq!(unknown, expected);
    let unknown = limits.limiter("mails").expect_err("no limiter").to_string();
    assert_eq!(unknown, r#"the file has no limiter "mails"; use "jobs""#);
    // Requests may pass through it, and a process that starts with this file has none.
    let web = format!("{}[layer.web]\n", policy("api", "20 per day"));
    let config = Config::from_toml(&web).expect("the form of a file");
    let errors = limits.replace(config.clone()).expect_err("a layer is used");
    assert_eq!(
        errors.to_string(),
        "layer \"api\": the process uses it, and the file has it no longer; keep it, or restart the \
         process without it (not-reloadable)"
    );
    assert_eq!(parameter(&ask_plainly(&api), "ratelimit-policy", "q"), "10");

    drop(api);
    let changes = limits.replace(config).expect("nothing has what is gone");
    assert_eq!(
        changes.to_string(),
        "policy \"api\": kept; quota: \"10 per day\" -> \"20 per day\"\n\
         layer \"api\": gone\nlayer \"web\": new\nlimiter \"jobs\": gone"
    );
    assert!(limits.layer("api").is_err());
    assert!(limits.limiter("jobs").is_err());
    assert!(limits.layer("web").is_ok());
}

#[test]
fn a_limiter_follows_the_file() {
    let text = |quota| format!("{}[limiter.jobs]\n", policy("jobs", quota));
    let limits = limits_of(&text("1 per day, burst 10"));
    let limiter = limits.limiter("jobs").expect("a limiter");
    let remaining = || left_of(&limiter.check_now("ann").expect("in memory"));
    assert_eq!(remaining(), [9]);
    replace(&limits, &text("1 per day, burst 20"));
    assert_eq!(remaining(), [18]);
    assert_eq!(limiter.metrics().requests.allowed, 2);
}
