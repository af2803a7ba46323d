//! A layer with shadow policies, as clients and handlers see it.

use tower_throttle::metrics::Checks;

use crate::{prelude::*, support::web::get as request_with};

fn old() -> Policy {
    Policy::new("old", FixedWindow::per_hour(4)).shared()
}

fn new() -> Policy {
    Policy::new("new", FixedWindow::per_hour(2))
        .shared()
        .shadow()
}

fn checks_of(layer: &RateLimitLayer, policy: &str) -> Checks {
    *layer.metrics().policy(policy).expect("its numbers")
}

#[test]
fn clients_see_no_shadow_policy() {
    let (layer, _) = layer_of([old(), new()]);
    let (without, _) = layer_of([old()]);
    for _ in 0..6 {
        let answers = [&layer, &without].map(|layer| ask(layer, plain()));
        let [answer, expected] =
            answers.map(|answer| (answer.status, answer.headers, answer.body, answer.reason));
        assert_eq!(answer, expected);
    }
    let decision = ask(&layer, plain()).decision.expect("a decision");
    assert_eq!(decision.denied_by().count(), 1);
    assert_eq!(decision.shadow_denied().count(), 1);
}

#[test]
fn shadow_with_headers_announces_shadow_policies_under_their_names() {
    let (layer, _) = layer_with([old(), new()], |builder| builder.shadow_with_headers());
    let limiter = Limiter::builder().policy(old()).policy(new()).build();
    let limiter = limiter.expect("a limiter");
    let policies = r#""old";q=4;w=3600, "new";q=2;w=3600"#;
    for (status, limits) in [
        (200, r#""old";r=3;t=3600, "new";r=1;t=3600"#),
        (200, r#""old";r=2;t=3600, "new";r=0;t=3600"#),
        // It would be denied.
        (200, r#""old";r=1;t=3600, "new";r=0;t=3600"#),
        (200, r#""old";r=0;t=3600, "new";r=0;t=3600"#),
        // A denial names what denied.
        (429, r#""old";r=0;t=3600"#),
    ] {
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("ratelimit-policy").as_deref(), Some(policies));
        assert_eq!(answer.field("ratelimit").as_deref(), Some(limits));
        let names_old = answer.text().contains(r#""violated-policies":["old"]"#);
        assert_eq!(names_old, status == 429);
    }
    for (responder, policies) in [
        (Responder::default(), r#""old";q=4;w=3600"#),
        (layer.responder(), policies),
    ] {
        let decision = limiter.check_now("ann").expect("a decision");
        let mut response = Response::new(());
        responder.add_headers(&RequestHead::from(&plain()), &decision, &mut response);
        assert_eq!(response.headers()["ratelimit-policy"], policies);
    }
}

#[test]
fn a_request_without_the_key_of_a_shadow_policy_passes_and_is_counted() {
    let keyed = || Policy::new("new", FixedWindow::per_hour(1)).key(key::header("x-api-key"));
    // A layer that cannot read the peer's address answers with 500 only for enforced policies.
    let by_peer = Policy::new("new", FixedWindow::per_hour(1));
    for (policy, expected) in [
        (keyed(), &[("key_missing", 3)][..]),
        // The other choices are as for enforced policies.
        (keyed().on_missing_key(OnMissingKey::Skip), &[]),
        (
            keyed().on_missing_key(OnMissingKey::Share),
            &[("near", 1), ("shadow_denied", 2)],
        ),
        (by_peer, &[("unknown", 3)]),
    ] {
        let is_shared = expected.len() > 1;
        let (layer, _) = layer_of([policy.shadow(), old()]);
        for _ in 0..3 {
            let answer = ask(&layer, plain());
            assert_eq!(answer.status, 200);
            let decision = answer.decision.expect("a decision");
            assert_eq!(decision.shadow_policies().count(), usize::from(is_shared));
        }
        let checks = checks_of(&layer, "new");
        let checks: Vec<_> = checks.by_result().filter(|(_, count)| *count > 0).collect();
        assert_eq!(checks, expected);
        assert_eq!(checks_of(&layer, "old").allowed, 3);
        assert!(layer.buckets(&RequestHead::from(&plain())).is_ok());
    }
}

/// All requests without a key are one caller, whatever the share.
#[test]
fn a_request_without_a_key_is_on_one_side() {
    let is_denied = |name: &str, percent| {
        let policy = Policy::new(name, FixedWindow::per_hour(9)).key(key::header("x-api-key"));
        let (layer, _) = layer_of([policy.enforce_for_percent(percent)]);
        let statuses = [(); 3].map(|()| ask(&layer, plain()).status);
        assert_eq!(statuses, [statuses[0]; 3]);
        statuses[0] == 403
    };
    let names: Vec<_> = (0..40).map(|number| format!("policy {number}")).collect();
    let denied = names.iter().filter(|name| is_denied(name, 50)).count();
    assert!((5..=35).contains(&denied), "{denied} of 40");
    assert!(names.iter().all(|name| is_denied(name, 100)));
}

/// A tier may hold permits, although the policy's own quota does not.
#[test]
fn a_tier_of_permits_is_not_shadowed() {
    let permits: Quota = "1 at once".parse().expect("a quota");
    let policy = Policy::new("tiers", TokenBucket::per_minute(5)).shared();
    let (layer, _) = layer_of([policy.quota_by(move |_| permits).shadow()]);
    for _ in 0..3 {
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, 200);
        let decision = answer.decision.expect("a decision");
        assert_eq!(decision.shadow_policies().count(), 0);
    }
    assert_eq!(checks_of(&layer, "tiers").unknown, 3);
}

#[test]
fn a_share_of_callers_is_denied_and_sees_the_policy() {
    let policy = Policy::new("half", FixedWindow::per_hour(1)).key(key::header("x-api-key"));
    let policy = policy.enforce_for_percent(50);
    let (layer, _) = layer_with([policy], |builder| builder);
    let mut denied = 0;
    for number in 0..200 {
        let request = || request_with([("x-api-key", number)]);
        let (first, second) = (ask(&layer, request()), ask(&layer, request()));
        assert_eq!(first.status, 200);
        let is_enforced = second.status == 429;
        assert_eq!(first.field("ratelimit").is_some(), is_enforced);
        assert_eq!(first.field("ratelimit-policy").is_some(), is_enforced);
        let decision = second.decision.expect("a decision");
        assert_eq!(decision.shadow_denied().count(), usize::from(!is_enforced));
        denied += u64::from(is_enforced);
    }
    assert!((60..=140).contains(&denied), "{denied} of 200");
    let half = checks_of(&layer, "half");
    assert_eq!((half.denied, half.shadow_denied), (denied, 200 - denied));
}

/// The policies that apply are not known from the layer alone.
#[test]
fn a_store_that_fails_announces_no_policy_that_may_be_in_shadow() {
    let half = Policy::new("half", FixedWindow::per_hour(1)).key(key::header("x-api-key"));
    let (layer, _) = layer_with([old(), half.enforce_for_percent(50)], |builder| {
        builder.store(Down).on_store_failure(OnStoreFailure::Allow)
    });
    for number in 0..20 {
        let answer = ask(&layer, request_with([("x-api-key", number)]));
        answer.assert_is("HTTP/1.1 200 OK\n\nhello");
    }
    assert!(checks_of(&layer, "half").unknown > 0);
}

#[test]
fn stacked_layers_list_the_shadow_policies_of_all() {
    let named = |name: &str| Policy::new(name, FixedWindow::per_hour(1)).shared();
    let (outer, _) = layer_of([named("outer"), named("outer-new").shadow()]);
    let (inner, _) = layer_of([named("inner-new").shadow(), named("inner")]);
    let service = outer.layer(inner.layer(service_fn(hello)));
    let decision = ask_service(service, plain()).decision.expect("a decision");
    let enforced: Vec<_> = decision.policies().map(|policy| policy.name()).collect();
    let shadow: Vec<_> = decision
        .shadow_policies()
        .map(|policy| policy.name())
        .collect();
    assert_eq!(enforced, ["outer", "inner"]);
    assert_eq!(shadow, ["outer-new", "inner-new"]);
    assert_eq!(decision.shadow_denied().count(), 0);
}

#[cfg(feature = "tracing")]
#[test]
fn a_shadow_denial_is_an_event_without_a_key() {
    use crate::logged::logged;
    use crate::support::assert_one_line;
    #[derive(Clone)]
    struct User;

    let hourly = |name: &str| Policy::new(name, FixedWindow::per_hour(1));
    let log_of = |policy: Policy, costs: &[&str]| {
        let (layer, _) = layer_of([policy.shadow()]);
        logged(|| {
            for cost in costs {
                let request = request_with([("x-api-key", "sk-secret"), ("cost", cost)]);
                assert_eq!(ask(&layer, request).status, 200);
            }
        })
    };
    let by_header = |name| hourly(name).key(key::header(name));
    let cheap = hourly("cheap").shared().cost_by(cost_in("cost"));
    let denied = "DEBUG|tower_throttle::denied|shadow=true";
    for (policy, costs, parts) in [
        (
            by_header("x-api-key"),
            &["1", "1"][..],
            r#"["x-api-key"]|reason=QuotaExceeded|retry_after=Some("#,
        ),
        (
            cheap,
            &["9"],
            r#"["cheap"]|reason=CostImpossible|retry_after=None"#,
        ),
        (
            by_header("x-none"),
            &["1"],
            r#"["x-none"]|reason=KeyMissing|header `x-none`"#,
        ),
    ] {
        let log = log_of(policy, costs);
        assert_one_line(&log, &format!("{denied}|{parts}"));
        assert!(!log[0].contains("sk-secret"), "{log:?}");
    }
    // What an enforced policy would be a failure for is said once, and as what it is.
    let log = log_of(hourly("peer"), &["1"; 3]);
    let parts = "ERROR|tower_throttle::wiring|a shadow policy has no key for any request";
    assert_one_line(&log, parts);
    let by_user = hourly("user").key(key::extension(|_: &User| 1_u64));
    let log = log_of(by_user, &["1"]);
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[1].contains("no request extension"), "{log:?}");
}
