//! What the demo exports for Prometheus.

use std::collections::BTreeSet;

use crate::{
    asking::{ONE_UNIT, decided, on_each_store, statuses, within},
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
        let before = metrics(demo);
        let caller = new_caller();
        let answers = demo.get_times(7, "/api/fixed-window", &caller);
        let wrong = demo.post("/api/fixed-window", &caller);
        let after = metrics(demo);

        assert_eq!(wrong.status, 405, "and so it is not counted");
        let allowed = answers.iter().filter(|answer| answer.status == 200).count() as u64;
        let counted = |result| {
            let of = |metrics| requests(metrics, "fixed-window", result);
            of(&after) - of(&before)
        };
        assert_eq!(
            (counted("allowed"), counted("denied")),
            (allowed, 7 - allowed)
        );
        let checked = |result: &str| {
            let labels = format!("limiter=\"fixed-window\",policy=\"window\",result=\"{result}\"");
            value(&after, &format!("tower_throttle_checks_total{{{labels}}}"))
        };
        assert_eq!(checked("allowed") + checked("near"), allowed);
        assert_eq!(checked("denied"), 7 - allowed);
        let other = requests(&after, "sliding-log", "allowed");
        assert_eq!(other, 0, "another layer counted it");
    });
}

/// The last two of ten units are left to the requests that are near the limit.
#[test]
fn metrics_count_the_requests_near_the_limit() {
    let demo = Demo::start(&[]);
    let near = |metrics: &Answer| {
        let labels = "limiter=\"token-bucket\",policy=\"bucket\",result=\"near\"";
        value(metrics, &format!("tower_throttle_checks_total{{{labels}}}"))
    };
    let (before, after) = within(ONE_UNIT, |caller| {
        let before = metrics(&demo);
        let answers = demo.get_times(10, "/api/token-bucket", caller);
        assert_eq!(statuses(&answers), [200; 10]);
        (before, metrics(&demo))
    });
    assert_eq!(near(&after) - near(&before), 2);
}

/// The second limit of the route has half of the units, and no client sees it.
#[test]
fn metrics_count_what_a_limit_in_shadow_would_deny() {
    on_each_store(|demo| {
        let shadow_denied = |metrics: &Answer| {
            let labels = "limiter=\"token-bucket\",policy=\"bucket-v2\",result=\"shadow_denied\"";
            value(metrics, &format!("tower_throttle_checks_total{{{labels}}}"))
        };
        let (answers, before, after) = decided(
            || {
                within(ONE_UNIT, |caller| {
                    let before = metrics(demo);
                    let answers = demo.get_times(8, "/api/token-bucket", caller);
                    (answers, before, metrics(demo))
                })
            },
            |(answers, ..)| answers,
        );
        assert_eq!(statuses(&answers), [200; 8]);
        let mut fields = answers
            .iter()
            .filter_map(|answer| answer.header("ratelimit"));
        assert!(fields.all(|field| !field.contains("v2")));
        assert_eq!(shadow_denied(&after) - shadow_denied(&before), 3);
    });
}
