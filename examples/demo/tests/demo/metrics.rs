//! What the demo exports for Prometheus.

use std::collections::BTreeSet;

use crate::{
    asking::{on_each_store, statuses},
    board::ROUTES,
    process::{Answer, Demo, new_caller},
};

fn metrics(demo: &Demo) -> Answer {
    let metrics = demo.get("/metrics", "prometheus");
    assert_eq!(metrics.status, 200);
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(metrics.header("content-type"), Some(content_type));
    metrics
}

fn value(metrics: &Answer, series: &str) -> u64 {
    let start = format!("{series} ");
    let values = metrics
        .body
        .lines()
        .filter_map(|line| line.strip_prefix(&start));
    let values: Vec<_> = values.collect();
    let [value] = values[..] else {
        panic!("{series} is there {} times", values.len());
    };
    value.parse().expect("a whole number")
}

fn requests(metrics: &Answer, limiter: &str, result: &str) -> u64 {
    let labels = format!("limiter=\"{limiter}\",result=\"{result}\"");
    value(
        metrics,
        &format!("tower_throttle_requests_total{{{labels}}}"),
    )
}

fn checks(metrics: &Answer, limiter: &str, policy: &str, result: &str) -> u64 {
    let labels = format!("limiter=\"{limiter}\",policy=\"{policy}\",result=\"{result}\"");
    value(metrics, &format!("tower_throttle_checks_total{{{labels}}}"))
}

#[test]
fn each_layer_is_in_one_text_of_metrics() {
    let demo = Demo::start(&[]);
    let metrics = metrics(&demo);
    for limiter in ROUTES {
        assert_eq!(requests(&metrics, limiter, "allowed"), 0, "{limiter}");
    }
    let types = metrics
        .body
        .lines()
        .filter(|line| line.starts_with("# TYPE "));
    let types: Vec<_> = types.collect();
    let distinct: BTreeSet<_> = types.iter().collect();
    assert_eq!(distinct.len(), types.len(), "{types:?}");
    assert!(types.contains(&"# TYPE tower_throttle_requests_total counter"));
}

#[test]
fn metrics_count_the_requests_of_each_route() {
    on_each_store(|demo| {
        let caller = new_caller();
        demo.get_times(7, "/api/fixed-window", &caller);
        let wrong = demo.post("/api/fixed-window", &caller);
        assert_eq!(wrong.status, 405, "and so it is not counted");
        let metrics = metrics(demo);
        let counted =
            ["allowed", "denied"].map(|result| requests(&metrics, "fixed-window", result));
        assert_eq!(counted, [5, 2]);
        let checked = ["allowed", "near", "denied"]
            .map(|result| checks(&metrics, "fixed-window", "window", result));
        assert_eq!((checked[0] + checked[1], checked[2]), (5, 2));
        let other = requests(&metrics, "sliding-log", "allowed");
        assert_eq!(other, 0, "another layer counted it");
    });
}

/// The last two of ten units are left to the requests that are near the limit. The second limit of
/// the route has half of the units, and no client sees it.
#[test]
fn metrics_count_what_is_near_a_limit_and_what_a_limit_in_shadow_would_deny() {
    on_each_store(|demo| {
        let answers = demo.get_times(10, "/api/token-bucket", &new_caller());
        assert_eq!(statuses(&answers), [200; 10]);
        let mut fields = answers
            .iter()
            .filter_map(|answer| answer.header("ratelimit"));
        assert!(fields.all(|field| !field.contains("v2")));
        let metrics = metrics(demo);
        let counted = |policy, result| checks(&metrics, "token-bucket", policy, result);
        assert_eq!(counted("bucket", "near"), 2);
        assert_eq!(counted("bucket-v2", "shadow_denied"), 5);
    });
}
