//! The example for OpenTelemetry exports what a snapshot has.

use std::{collections::HashMap, time::Duration};

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
    data::{AggregatedMetrics, Metric, MetricData},
};
use tower_throttle::{Limiter, Policy, TokenBucket};

/// Returns the points of a metric by the values of their attributes, in the order of their names.
fn points(metric: &Metric) -> HashMap<String, f64> {
    fn by_values<'a, T: Into<f64>>(
        points: impl Iterator<Item = (Vec<String>, T)> + 'a,
    ) -> HashMap<String, f64> {
        points
            .map(|(values, number)| (values.join(" "), number.into()))
            .collect()
    }
    macro_rules! read {
        ($data:expr, $convert:expr) => {{
            let values = |attributes: &mut dyn Iterator<Item = &opentelemetry::KeyValue>| {
                let mut pairs: Vec<_> = attributes
                    .map(|pair| (pair.key.to_string(), pair.value.to_string()))
                    .collect();
                pairs.sort();
                pairs
                    .into_iter()
                    .map(|(_, value)| value)
                    .collect::<Vec<_>>()
            };
            match $data {
                MetricData::Sum(sum) => by_values(
                    sum.data_points()
                        .map(|point| (values(&mut point.attributes()), $convert(point.value()))),
                ),
                MetricData::Gauge(gauge) => by_values(
                    gauge
                        .data_points()
                        .map(|point| (values(&mut point.attributes()), $convert(point.value()))),
                ),
                other => panic!("{other:?}"),
            }
        }};
    }
    match metric.data() {
        AggregatedMetrics::U64(data) => read!(data, |number: u64| number as f64),
        AggregatedMetrics::F64(data) => read!(data, |number: f64| number),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_instruments_export_what_the_snapshot_has() {
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let policy = Policy::new("mails", TokenBucket::per_second(100).burst(2));
    let builder = Limiter::builder().name("outbox").policy(policy);
    let limiter = builder.build().expect("a limiter");
    let seen = limiter.clone();
    crate::instruments::register(&provider.meter("test"), move || seen.metrics());

    for _ in 0..5 {
        let permit = limiter.acquire("ann", Duration::from_secs(20)).await;
        assert!(permit.expect("an answer").is_allowed());
    }
    provider.force_flush().expect("a collection");

    let exported = exporter.get_finished_metrics().expect("what was collected");
    let exported = exported.last().expect("one collection");
    let metrics = exported.scope_metrics().flat_map(|scope| scope.metrics());
    let found: HashMap<_, _> = metrics
        .map(|metric| (metric.name().to_owned(), points(metric)))
        .collect();
    let seen = limiter.metrics();
    let requests = seen.requests.by_result();
    let requests: HashMap<_, _> = requests
        .map(|(result, count)| (format!("outbox {result}"), count as f64))
        .collect();
    assert_eq!(found["tower_throttle.requests"], requests);
    assert_eq!(requests["outbox allowed"], 5.0);
    let checks = &found["tower_throttle.checks"];
    assert_eq!(
        checks["outbox mails near"] + checks["outbox mails allowed"],
        5.0
    );
    assert_eq!(found["tower_throttle.bans"]["outbox mails"], 0.0);
    assert_eq!(found["tower_throttle.decisions"]["outbox store"], 5.0);
    assert_eq!(
        found["tower_throttle.store.failures"]["timeout memory"],
        0.0
    );
    assert_eq!(found["tower_throttle.store.up"]["memory"], 1.0);
    assert_eq!(found["tower_throttle.waiting"]["outbox"], 0.0);
    let waits = seen.wait_seconds.count() as f64;
    assert!(waits >= 1.0, "{seen:?}");
    assert_eq!(found["tower_throttle.wait.count"]["outbox"], waits);
    assert_eq!(
        found["tower_throttle.wait.time"]["outbox"],
        seen.wait_seconds.sum
    );
    assert!(
        !found.contains_key("tower_throttle.store.call.count"),
        "memory has no calls"
    );
}
