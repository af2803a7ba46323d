//! OpenTelemetry instruments that read a snapshot when they are collected.
//!
//! Copy this file: the crate does not depend on OpenTelemetry, so you choose its version.

use opentelemetry::{KeyValue, metrics::Meter};
use tower_throttle::metrics::{Histogram, Snapshot};

/// Registers instruments for the numbers of a layer or limiter, and of its store.
///
/// **The danger**: of layers and limiters that have the same name, only the last one counts, and so
/// of stores. Give each a name of its own.
///
/// OpenTelemetry has no instrument that reads a histogram which was counted elsewhere. So a
/// histogram becomes two counters, whose quotient is the mean.
pub(crate) fn register(
    meter: &Meter,
    snapshot: impl Fn() -> Snapshot + Clone + Send + Sync + 'static,
) {
    let limiter = |seen: &Snapshot| KeyValue::new("limiter", seen.limiter().to_owned());
    let store = |seen: &Snapshot| KeyValue::new("store", seen.store.name.clone());

    let seen = snapshot.clone();
    meter
        .u64_observable_counter("tower_throttle.requests")
        .with_callback(move |observer| {
            let seen = seen();
            for (result, count) in seen.requests.by_result() {
                observer.observe(count, &[limiter(&seen), KeyValue::new("result", result)]);
            }
        })
        .build();
    let seen = snapshot.clone();
    meter
        .u64_observable_counter("tower_throttle.checks")
        .with_callback(move |observer| {
            let seen = seen();
            for (policy, checks) in seen.policies() {
                let policy = KeyValue::new("policy", policy.to_owned());
                for (result, count) in checks.by_result() {
                    let result = KeyValue::new("result", result);
                    observer.observe(count, &[limiter(&seen), policy.clone(), result]);
                }
            }
        })
        .build();
    let seen = snapshot.clone();
    meter
        .u64_observable_counter("tower_throttle.bans")
        .with_callback(move |observer| {
            let seen = seen();
            for (policy, count) in seen.bans() {
                let policy = KeyValue::new("policy", policy.to_owned());
                observer.observe(count, &[limiter(&seen), policy]);
            }
        })
        .build();
    let seen = snapshot.clone();
    meter
        .u64_observable_counter("tower_throttle.decisions")
        .with_callback(move |observer| {
            let seen = seen();
            for (source, count) in seen.decisions.by_source() {
                observer.observe(count, &[limiter(&seen), KeyValue::new("source", source)]);
            }
        })
        .build();
    let seen = snapshot.clone();
    meter
        .u64_observable_counter("tower_throttle.store.failures")
        .with_callback(move |observer| {
            let seen = seen();
            for (kind, count) in seen.store.failures.by_kind() {
                observer.observe(count, &[store(&seen), KeyValue::new("kind", kind)]);
            }
        })
        .build();

    gauge(meter, "tower_throttle.waiting", &snapshot, move |seen| {
        Some((seen.waiting, limiter(seen)))
    });
    gauge(meter, "tower_throttle.store.up", &snapshot, move |seen| {
        Some((seen.store.is_up.into(), store(seen)))
    });
    gauge(
        meter,
        "tower_throttle.store.breaker_open",
        &snapshot,
        move |seen| Some((seen.store.breakers_open?, store(seen))),
    );
    gauge(
        meter,
        "tower_throttle.store.in_flight",
        &snapshot,
        move |seen| Some((seen.store.in_flight?, store(seen))),
    );

    mean(meter, "tower_throttle.wait", &snapshot, move |seen| {
        Some((&seen.wait_seconds, limiter(seen)))
    });
    mean(meter, "tower_throttle.store.call", &snapshot, move |seen| {
        Some((seen.store.call_seconds.as_ref()?, store(seen)))
    });
}

fn gauge(
    meter: &Meter,
    name: &'static str,
    snapshot: &(impl Fn() -> Snapshot + Clone + Send + Sync + 'static),
    read: impl Fn(&Snapshot) -> Option<(u64, KeyValue)> + Send + Sync + 'static,
) {
    let seen = snapshot.clone();
    meter
        .u64_observable_gauge(name)
        .with_callback(move |observer| {
            if let Some((value, owner)) = read(&seen()) {
                observer.observe(value, &[owner]);
            }
        })
        .build();
}

/// Registers the number of values, and their sum in seconds.
fn mean(
    meter: &Meter,
    name: &'static str,
    snapshot: &(impl Fn() -> Snapshot + Clone + Send + Sync + 'static),
    read: impl Fn(&Snapshot) -> Option<(&Histogram, KeyValue)> + Clone + Send + Sync + 'static,
) {
    let (seen, reading) = (snapshot.clone(), read.clone());
    meter
        .u64_observable_counter(format!("{name}.count"))
        .with_callback(move |observer| {
            if let Some((histogram, owner)) = reading(&seen()) {
                observer.observe(histogram.count(), &[owner]);
            }
        })
        .build();
    let seen = snapshot.clone();
    meter
        .f64_observable_counter(format!("{name}.time"))
        .with_unit("s")
        .with_callback(move |observer| {
            if let Some((histogram, owner)) = read(&seen()) {
                observer.observe(histogram.sum, &[owner]);
            }
        })
        .build();
}
