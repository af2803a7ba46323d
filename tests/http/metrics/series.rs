//! No request can add a series, whatever its caller sends.

use tower_throttle::metrics;

use super::exposition::parse;
use crate::prelude::*;

#[test]
fn a_hundred_thousand_callers_leave_the_number_of_series_unchanged() {
    const REQUESTS: u64 = 20_000;
    const CALLERS: u64 = 100_000;

    let policy = || Policy::new("api", TokenBucket::per_day(2));
    let store = MemoryStore::builder().capacity(10_000).build();
    let layer = RateLimitLayer::new(policy().key(key::header("x-api-key"))).store(store.clone());
    let limiter = Limiter::builder().store(store).policy(policy());
    let limiter = limiter.name("jobs").build().expect("a limiter");
    let series = || {
        let text = metrics::to_prometheus([&layer.metrics(), &limiter.metrics()]);
        let samples = parse(&text, false).samples;
        samples.into_keys().collect::<BTreeSet<_>>()
    };
    let before = series();
    let mut service = layer.layer(service_fn(hello));
    for caller in 0..REQUESTS {
        let mut request = plain();
        let caller = HeaderValue::from(caller);
        request.headers_mut().insert("x-api-key", caller);
        assert!(at_once(service.call(request)).is_ok());
    }
    for caller in 0..CALLERS {
        assert!(limiter.check_now(caller).is_ok());
    }
    assert_eq!(layer.metrics().requests.total(), REQUESTS);
    assert_eq!(limiter.metrics().requests.total(), CALLERS);
    let after = series();
    assert_eq!(after, before);

    // No label has a value that is not in these lists.
    for (name, labels) in after {
        for (label, value) in labels {
            let known = match (&*name, &*label) {
                (_, "limiter") => "default jobs",
                (_, "policy") => "api",
                (_, "source") => "list store cache lease local store_failure",
                (_, "store") => "memory",
                ("tower_throttle_store_failures_total", "kind") => {
                    "timeout unavailable not_sent not_connected overloaded refused redirected \
                     foreign_reply corrupt_state"
                }
                ("tower_throttle_wait_seconds_bucket", "le") => {
                    "0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 5.0 10.0 30.0 60.0 +Inf"
                }
                ("tower_throttle_requests_total", "result") => {
                    "allowed denied banned impossible key_missing listed store_failed \
                     misconfigured not_limited exempt cancelled"
                }
                ("tower_throttle_checks_total", "result") => {
                    "allowed near denied impossible key_missing shadow_denied unknown"
                }
                ("tower_throttle_settlements_total", "result") => {
                    "charged partial released late lost"
                }
                other => panic!("{other:?}"),
            };
            assert!(
                known.split(' ').any(|known| known == value),
                "{label}={value}"
            );
        }
    }
}
