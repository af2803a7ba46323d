//! The callers that are denied most, and the last denials.

use std::{
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{prelude::*, support::denial_counts};

fn api() -> Policy {
    Policy::new("api", FixedWindow::per_day(1)).key(key::header("x-api-key"))
}

fn of(caller: &str) -> Fingerprint {
    Fingerprint::from(&Key::from(caller))
}

/// The policy, the fingerprint and the count of each listed caller.
fn counts(layer: &RateLimitLayer, most: usize) -> Vec<(String, Fingerprint, u64)> {
    let top = layer.top_denied(most);
    let offenders = top.offenders.into_iter();
    offenders
        .map(|offender| (offender.policy, offender.fingerprint, offender.count))
        .collect()
}

fn send(layer: &RateLimitLayer, caller: &str, times: u64) {
    for _ in 0..times {
        ask(layer, get([("x-api-key", caller)]));
    }
}

/// The counts of callers by `api`.
fn of_api<const N: usize>(counts: [(&str, u64); N]) -> [(String, Fingerprint, u64); N] {
    counts.map(|(caller, count)| ("api".to_owned(), of(caller), count))
}

fn at(clock: &ManualClock) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(clock.now_us())
}

#[test]
fn counts_agree_with_the_decisions_whatever_is_denied_in_which_order() {
    let mut random = Random::new();
    for _ in 0..20 {
        let (layer, clock) = layer_of(denial_counts::policies());
        let pass = |random: &mut Random| {
            let us = [0, 0, 0, 1, 400, 999, 1_000][random.below(7) as usize];
            clock.advance(Duration::from_micros(us));
        };
        at_once(denial_counts::assert_exact(&layer, &mut random, pass));
    }
}

#[test]
fn each_denial_is_remembered_and_counts_if_it_is_of_a_caller() {
    for (reason, layer, cost) in every_reason(|builder| builder) {
        ask(&layer, get([("api", cost)]));
        let (counted, policies) = match reason {
            DenialReason::StoreFailed | DenialReason::Misconfigured => (0, &[][..]),
            DenialReason::KeyMissing => (0, &["api"][..]),
            _ => (1, &["api"][..]),
        };
        assert_eq!(layer.top_denied(20).total, counted, "{reason:?}");
        let [denial] = &layer.recent_denials()[..] else {
            panic!("one denial");
        };
        assert_eq!(denial.reason, reason);
        assert_eq!(denial.policies, policies);
        assert_eq!(denial.fingerprints.len() as u64, counted, "{reason:?}");
    }
}

/// So an operator sees how many callers a new quota would hit.
#[test]
fn the_callers_that_a_shadow_policy_would_deny_are_listed_beside_the_others() {
    let tried = || {
        let policy = Policy::new("tried", TokenBucket::per_day(1)).key(key::header("x-api-key"));
        policy.shadow()
    };
    let listed = |layer: &RateLimitLayer| -> BTreeSet<_> {
        let offenders = layer.top_denied(20).offenders.into_iter();
        let listed = offenders.map(|one| (one.policy, one.shadow, one.fingerprint, one.count));
        listed.collect()
    };
    let expected = |policy: &str, shadow| {
        let counts = [("ann", 2), ("bob", 1)];
        counts.map(|(caller, count)| (policy.to_owned(), shadow, of(caller), count))
    };
    let (both, clock) = layer_of([tried(), api()]);
    let (only_tried, _) = layer_of([tried()]);
    for layer in [&both, &only_tried] {
        for (caller, times) in [("ann", 3), ("bob", 2), ("cid", 1)] {
            send(layer, caller, times);
        }
    }
    let all = [expected("api", false), expected("tried", true)].concat();
    assert_eq!(listed(&both), BTreeSet::from_iter(all));
    assert_eq!(both.top_denied(20).offenders[0].last_seen, at(&clock));
    // These requests were admitted, so they are no denials.
    assert_eq!(listed(&only_tried), expected("tried", true).into());
    assert!(only_tried.recent_denials().is_empty());
}

#[test]
fn counts_are_halved_every_ten_minutes() {
    let (layer, clock) = layer_of([api()]);
    // A whole number of periods.
    let start_us = NOW_S * 1_000_000 / 600_000_000 * 600_000_000;
    clock.set_us(start_us);
    for (caller, denied) in [("ann", 9), ("bob", 4), ("cid", 1)] {
        send(&layer, caller, denied + 1);
    }
    clock.advance(Duration::from_micros(599_999_999));
    let before = of_api([("ann", 9), ("bob", 4), ("cid", 1)]);
    assert_eq!(counts(&layer, 20), before);
    // Reading is enough.
    clock.advance(Duration::from_micros(1));
    assert_eq!(counts(&layer, 20), of_api([("ann", 4), ("bob", 2)]));
    assert_eq!(layer.top_denied(20).total, 7);
    clock.advance(Duration::from_secs(600));
    send(&layer, "bob", 1);
    assert_eq!(counts(&layer, 20), of_api([("bob", 2), ("ann", 2)]));
    clock.advance(Duration::from_secs(1_800));
    assert_eq!(layer.top_denied(20), Default::default());

    // A clock that is set back halves nothing, and goes on from there.
    send(&layer, "bob", 2);
    clock.set_us(clock.now_us() - 86_400_000_000);
    assert_eq!(counts(&layer, 20), of_api([("bob", 2)]));
    clock.advance(Duration::from_secs(600));
    assert_eq!(counts(&layer, 20), of_api([("bob", 1)]));

    // The end of a period takes a caller with one denial off the list. The next one is counted.
    let (layer, clock) = layer_of([api()]);
    clock.set_us(start_us - 1);
    send(&layer, "ann", 2);
    clock.set_us(start_us);
    send(&layer, "ann", 1);
    assert_eq!(counts(&layer, 20), of_api([("ann", 1)]));
}

#[test]
fn the_last_256_denials_are_remembered() {
    let jitter = Duration::from_secs(60);
    let (layer, clock) = layer_with([api()], |builder| builder.retry_after_jitter(jitter));
    for _ in 0..=300 {
        ask(&layer, request(Method::POST, [("x-api-key", "ann")]));
        clock.advance(Duration::from_secs(1));
    }
    let recent = layer.recent_denials();
    assert_eq!(recent.len(), 256);
    for (seconds, denial) in (1..).zip(&recent) {
        let ago = Duration::from_secs(seconds);
        assert_eq!(denial.at, at(&clock) - ago);
        assert_eq!(denial.reason, DenialReason::QuotaExceeded);
        assert_eq!(denial.policies, ["api"]);
        assert_eq!(denial.fingerprints, [of("ann")]);
        assert_eq!((denial.method, &denial.route), (Some("POST"), &None));
        // The window ends 86,400 seconds after the first request.
        let wait = Duration::from_secs(86_400 - 301) + ago;
        assert_eq!(denial.retry_after, Some(wait));
    }
}

#[test]
fn a_caller_that_is_denied_again_at_once_is_remembered_once_and_counted_each_time() {
    let (layer, clock) = layer_of([api().cost_by(cost_in("cost"))]);
    for (caller, cost, later_us) in [
        ("ann", "1", 0),
        ("bob", "1", 0),
        ("ann", "1", 0),
        ("ann", "1", 999),
        ("bob", "1", 0),
        ("ann", "1", 0),
        // Another reason.
        ("ann", "5", 0),
        ("ann", "5", 1_000),
        ("ann", "5", 0),
    ] {
        clock.advance(Duration::from_micros(later_us));
        ask(&layer, get([("x-api-key", caller), ("cost", cost)]));
    }
    assert_eq!(layer.recent_denials().len(), 5);
    assert_eq!(counts(&layer, 20), of_api([("ann", 6), ("bob", 1)]));
}

#[test]
fn an_invented_method_is_not_remembered() {
    let (layer, _) = layer_of([api()]);
    for method in ["GET", "QUERY", "sk-live-7Qx9vLmZ"] {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        ask(&layer, request::<&str, 0>(method, []));
    }
    let recent = layer.recent_denials();
    let methods: Vec<_> = recent.iter().map(|denial| denial.method).collect();
    assert_eq!(methods, [None, Some("QUERY"), Some("GET")]);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_route_is_remembered_and_no_path() {
    use axum::{Router, body::Body, routing::get};

    let layer = RateLimitLayer::new(api());
    let app = Router::new().route("/users/{id}", get(|| async {}));
    let app = app.layer(layer.clone());
    for _ in 0..2 {
        let request = Request::get("/users/4711?token=s3cret").header("x-api-key", "sk-live");
        let request = request.body(Body::empty()).expect("a request");
        app.clone().oneshot(request).await.expect("a response");
    }
    let [denial] = &layer.recent_denials()[..] else {
        panic!("one denial");
    };
    assert_eq!(denial.route.as_deref(), Some("/users/{id}"));
    let shown = format!("{denial:?} {:?}", layer.top_denied(20));
    for secret in ["4711", "s3cret", "sk-live"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn a_denial_that_comes_later_is_recorded_unless_its_client_left() {
    let slow = Slow::new(standing_store().0);
    let gate = Arc::clone(&slow.gate);
    let layer = RateLimitLayer::new(api()).store(slow);
    let mut service = layer.layer(service_fn(hello::<Full<Bytes>>));
    let mut call = || service.call(get([("x-api-key", "ann")]));
    let (admitted, denied, left) = (call(), call(), call());
    gate.add_permits(3);
    assert_eq!(admitted.await.expect("a response").status(), 200);
    drop(left);
    assert_eq!(layer.top_denied(20).total, 0);
    assert_eq!(denied.await.expect("a response").status(), 429);
    assert_eq!(counts(&layer, 20), of_api([("ann", 1)]));
    assert_eq!(layer.recent_denials().len(), 1);

    // A permit is asked for by another way, which owns the keys.
    let jobs = Policy::new("api", Concurrency::new(1)).key(key::header("x-api-key"));
    let (layer, _) = layer_of([jobs]);
    let service = layer.layer(service_fn(hello::<Full<Bytes>>));
    let call = || service.clone().oneshot(get([("x-api-key", "ann")]));
    let held = call().await.expect("a response");
    assert_eq!(call().await.expect("a response").status(), 429);
    drop(held);
    assert_eq!(counts(&layer, 20), of_api([("ann", 1)]));
}

/// Returns a layer, and counts how often the name of a caller is asked for.
fn named(
    policy: Policy,
    name: impl Fn(&RequestHead<'_>) -> Option<String> + Send + Sync + 'static,
) -> (RateLimitLayer, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let calls_of_layer = Arc::clone(&calls);
    let (layer, _) = layer_with([policy], |builder| {
        builder.name_offenders(move |head| {
            calls_of_layer.fetch_add(1, Ordering::SeqCst);
            name(head)
        })
    });
    (layer, calls)
}

/// A bucket of several callers has none: it would be that of one of them.
#[test]
fn a_caller_is_named_once_and_in_a_bounded_length() {
    let long = format!("a{}", "é".repeat(1_000));
    let cut = format!("a{}", "é".repeat(31));
    let all = || Policy::new("all", TokenBucket::per_day(1));
    let anonymous = all().key(key::header("x-none"));
    for (policy, sent, shown, expected_calls) in [
        (api(), "Ann\tB.", Some("Ann\u{fffd}B."), 1),
        (api(), &long, Some(&*cut), 1),
        (api(), "", None, 1),
        (all().shared(), "ann", None, 0),
        (all().key(key::global()), "ann", None, 0),
        (
            anonymous.on_missing_key(OnMissingKey::Share),
            "ann",
            None,
            0,
        ),
    ] {
        let (layer, calls) = named(policy, |head| {
            let name = String::from_utf8_lossy(head.headers()["x-name"].as_bytes());
            (!name.is_empty()).then(|| name.into_owned())
        });
        // Without a name, the next denial would ask again.
        for _ in 0..if sent.is_empty() { 2 } else { 4 } {
            ask(&layer, get([("x-api-key", "ann"), ("x-name", sent)]));
        }
        assert_eq!(layer.top_denied(20).offenders[0].name.as_deref(), shown);
        assert_eq!(calls.load(Ordering::SeqCst), expected_calls);
    }
}

/// The lists are not locked while the application names a caller.
#[test]
fn the_closure_that_names_callers_may_read_the_lists() {
    let itself: Arc<OnceLock<RateLimitLayer>> = Arc::default();
    let read = Arc::clone(&itself);
    let (layer, _) = named(api(), move |_| {
        let layer = read.get()?;
        let (total, recent) = (layer.top_denied(9).total, layer.recent_denials().len());
        Some(format!("{total}, {recent}"))
    });
    itself.set(layer.clone()).expect("the first");
    send(&layer, "ann", 2);
    send(&layer, "bob", 2);
    let offenders = layer.top_denied(20).offenders.into_iter();
    let names: BTreeSet<_> = offenders.filter_map(|offender| offender.name).collect();
    assert_eq!(names, ["0, 0", "1, 1"].map(str::to_owned).into());
}
