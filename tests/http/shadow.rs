//! A layer with shadow policies, as clients and handlers see it.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tower::Layer;
use tower_throttle::{
    Concurrency, FixedWindow, HeaderFormat, Limiter, OnMissingKey, OnStoreFailure, Policy,
    RateLimitLayer, RequestHead, TokenBucket, key, metrics::Checks,
};

use crate::support::{
    assert_config_error,
    web::{Down, ask, ask_service, get as request_with, layer_with, plain, standing_store},
};

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
    let (layer, _) = layer_with([old(), new()], |builder| builder);
    let (without, _) = layer_with([old()], |builder| builder);
    for _ in 0..6 {
        let (answer, expected) = (ask(&layer, plain()), ask(&without, plain()));
        assert_eq!(answer.status, expected.status);
        assert_eq!(answer.headers, expected.headers);
        assert_eq!(answer.body, expected.body);
        assert_eq!(answer.reason, expected.reason);
    }
    let decision = ask(&layer, plain()).decision.expect("a decision");
    assert_eq!(decision.denied_by().count(), 1);
    assert_eq!(decision.shadow_denied().count(), 1);
}

#[test]
fn shadow_with_headers_announces_shadow_policies_under_their_names() {
    let (layer, _) = layer_with([old(), new()], |builder| builder.shadow_with_headers());
    let policies = r#""old";q=4;w=3600, "new";q=2;w=3600"#;
    for limits in [
        r#""old";r=3;t=3600, "new";r=1;t=3600"#,
        r#""old";r=2;t=3600, "new";r=0;t=3600"#,
        // It would be denied.
        r#""old";r=1;t=3600, "new";r=0;t=3600"#,
        r#""old";r=0;t=3600, "new";r=0;t=3600"#,
    ] {
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit-policy").as_deref(), Some(policies));
        assert_eq!(answer.field("ratelimit").as_deref(), Some(limits));
    }
    // A denial names what denied.
    let answer = ask(&layer, plain());
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.field("ratelimit").as_deref(),
        Some(r#""old";r=0;t=3600"#)
    );
    assert_eq!(answer.field("ratelimit-policy").as_deref(), Some(policies));
    assert!(answer.text().contains(r#""violated-policies":["old"]"#));
}

#[test]
fn shadow_with_headers_needs_fields_with_names() {
    let formats = [
        HeaderFormat::Draft7,
        HeaderFormat::Draft6,
        HeaderFormat::XRateLimitDelta,
        HeaderFormat::XRateLimitEpoch,
        HeaderFormat::None,
    ];
    for format in formats {
        let builder = RateLimitLayer::builder().policy(new()).headers(format);
        let start = "`shadow_with_headers()` with header fields that do not name policies";
        let built = builder.shadow_with_headers().build();
        assert_config_error(built, "shadow-headers-unsupported", start);
    }
}

#[test]
fn shadow_all_denies_no_request() {
    let deny = OnStoreFailure::Deny;
    let strict = Policy::new("strict", FixedWindow::per_hour(0)).on_store_failure(deny);
    let (layer, _) = layer_with([old(), strict.shared()], |builder| builder.shadow_all());
    for number in 1..=6 {
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, 200);
        assert_eq!(answer.names(), [] as [&str; 0]);
        let decision = answer.decision.expect("a decision");
        let denied = decision.shadow_denied().map(|policy| policy.name());
        let expected = if number > 4 {
            &["old", "strict"][..]
        } else {
            &["strict"]
        };
        assert_eq!(denied.collect::<Vec<_>>(), expected);
    }
    assert_eq!(checks_of(&layer, "strict").shadow_denied, 6);
    // Nor while the store fails.
    let failing = layer.store(Down);
    assert_eq!(ask(&failing, plain()).status, 200);
    let unknown = ["old", "strict"].map(|policy| checks_of(&failing, policy).unknown);
    assert_eq!(unknown, [1, 1]);
    let permits = RateLimitLayer::builder().policy(Policy::new("permits", Concurrency::new(1)));
    let start = r#"policy "permits": a shadow policy cannot have a Concurrency quota"#;
    assert_config_error(permits.shadow_all().build(), "cannot-shadow", start);
}

#[test]
fn a_request_without_the_key_of_a_shadow_policy_passes_and_is_counted() {
    let by_header = || Policy::new("keyed", FixedWindow::per_hour(1)).key(key::header("x-api-key"));
    let (layer, _) = layer_with([by_header().shadow(), old()], |builder| builder);
    for _ in 0..3 {
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, 200);
        let decision = answer.decision.expect("a decision");
        assert_eq!(decision.shadow_policies().count(), 0);
    }
    let answer = ask(&layer, request_with([("x-api-key", "k1")]));
    assert_eq!(
        answer
            .decision
            .expect("a decision")
            .shadow_policies()
            .count(),
        1
    );
    assert_eq!(checks_of(&layer, "keyed").key_missing, 3);
    assert_eq!(
        checks_of(&layer, "old").allowed + checks_of(&layer, "old").near,
        4
    );

    // The other choices are as for enforced policies.
    let skipped = by_header().on_missing_key(OnMissingKey::Skip).shadow();
    let (layer, _) = layer_with([skipped], |builder| builder);
    assert_eq!(ask(&layer, plain()).status, 200);
    assert_eq!(checks_of(&layer, "keyed"), Checks::default());
    let sharing = by_header().on_missing_key(OnMissingKey::Share).shadow();
    let (layer, _) = layer_with([sharing], |builder| builder);
    for _ in 0..2 {
        assert_eq!(ask(&layer, plain()).status, 200);
    }
    assert_eq!(checks_of(&layer, "keyed").shadow_denied, 1);

    // A layer that cannot read the peer's address answers with 500 only for enforced policies.
    let by_peer = Policy::new("peer", FixedWindow::per_hour(1)).shadow();
    let (layer, _) = layer_with([by_peer, old()], |builder| builder);
    assert_eq!(ask(&layer, plain()).status, 200);
    assert_eq!(checks_of(&layer, "peer").unknown, 1);
    assert!(layer.buckets(&RequestHead::from(&plain())).is_ok());
}

/// All requests without a key are one caller, whatever the share.
#[test]
fn a_request_without_a_key_is_on_one_side() {
    let status = |name: &str, percent| {
        let policy = Policy::new(name, FixedWindow::per_hour(9)).key(key::header("x-api-key"));
        let policy = policy.enforce_for_percent(percent);
        let (layer, _) = layer_with([policy], |builder| builder);
        let statuses = [(); 3].map(|()| ask(&layer, plain()).status);
        assert!(
            statuses.iter().all(|status| *status == statuses[0]),
            "{statuses:?}"
        );
        statuses[0]
    };
    let names = (0..40).map(|number| format!("policy {number}"));
    let denied = names
        .clone()
        .filter(|name| status(name, 50) == StatusCode::FORBIDDEN);
    let denied = denied.count();
    assert!((5..=35).contains(&denied), "{denied} of 40");
    assert!(
        names
            .clone()
            .all(|name| status(&name, 100) == StatusCode::FORBIDDEN)
    );
}

/// A tier may hold permits, although the policy's own quota does not.
#[test]
fn a_tier_of_permits_is_not_shadowed() {
    let permits = tower_throttle::Quota::try_from(Concurrency::new(1)).expect("a quota");
    let policy = Policy::new("tiers", TokenBucket::per_minute(5)).shared();
    let policy = policy.quota_by(move |_| permits).shadow();
    let (layer, _) = layer_with([policy], |builder| builder);
    for _ in 0..3 {
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer
                .decision
                .expect("a decision")
                .shadow_policies()
                .count(),
            0
        );
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
    let layer = RateLimitLayer::builder()
        .store(Down)
        .on_store_failure(OnStoreFailure::Allow)
        .policy(old())
        .policy(half.enforce_for_percent(50))
        .build()
        .expect("a layer");
    for number in 0..20 {
        let answer = ask(&layer, request_with([("x-api-key", number)]));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit-policy"), None);
    }
    assert!(checks_of(&layer, "half").unknown > 0);
}

#[test]
fn stacked_layers_list_the_shadow_policies_of_all() {
    let (store, _) = standing_store();
    let layer = |policies: [Policy; 2]| {
        let builder = RateLimitLayer::builder()
            .store(store.clone())
            .decision_in_extensions();
        let builder = policies
            .into_iter()
            .fold(builder, |all, one| all.policy(one));
        builder.build().expect("a layer")
    };
    let named = |name: &str| Policy::new(name, FixedWindow::per_hour(1)).shared();
    let outer = layer([named("outer"), named("outer-new").shadow()]);
    let inner = layer([named("inner-new").shadow(), named("inner")]);
    let hello = tower::service_fn(crate::support::web::hello::<Full<Bytes>>);
    let service = outer.layer(inner.layer(hello));
    let decision = ask_service(service, plain()).decision.expect("a decision");
    let names = |policies: &mut dyn Iterator<Item = &tower_throttle::PolicyDecision>| {
        policies
            .map(|policy| policy.name().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&mut decision.policies()), ["outer", "inner"]);
    assert_eq!(
        names(&mut decision.shadow_policies()),
        ["outer-new", "inner-new"]
    );
    assert_eq!(decision.shadow_denied().count(), 0);
}

/// What the responder adds for a limiter's decision follows the same settings.
#[test]
fn a_responder_announces_shadow_policies_if_it_is_told_to() {
    let limiter = Limiter::builder().policy(old()).policy(new()).build();
    let limiter = Arc::new(limiter.expect("a limiter"));
    let field = |responder: tower_throttle::Responder| {
        let request = plain();
        let head = RequestHead::from(&request);
        let decision = limiter.check_now("ann").expect("a decision");
        let mut response = http::Response::new(());
        responder.add_headers(&head, &decision, &mut response);
        let field = response.headers().get("ratelimit-policy").expect("a field");
        field.to_str().expect("ASCII").to_owned()
    };
    assert_eq!(
        field(tower_throttle::Responder::default()),
        r#""old";q=4;w=3600"#
    );
    let with = RateLimitLayer::builder().shadow_with_headers().responder();
    assert_eq!(field(with), r#""old";q=4;w=3600, "new";q=2;w=3600"#);
}

#[cfg(feature = "tracing")]
#[test]
fn a_shadow_denial_is_an_event_without_a_key() {
    use crate::logged::logged;
    use crate::support::assert_one_line;

    let by_header = Policy::new("keyed", FixedWindow::per_hour(1)).key(key::header("x-api-key"));
    let by_peer = Policy::new("peer", FixedWindow::per_hour(1)).shadow();
    let cheap = Policy::new("cheap", FixedWindow::per_hour(3)).shared();
    let cheap = cheap.cost_by(crate::support::web::cost_in("cost"));
    let (layer, _) = layer_with([by_header.shadow(), cheap.shadow()], |builder| builder);
    let send = |key: &str, cost: &str| {
        let request = request_with([("x-api-key", key), ("cost", cost)]);
        logged(|| assert_eq!(ask(&layer, request).status, 200))
    };
    assert_eq!(send("sk-secret", "1"), [] as [&str; 0]);
    let log = send("sk-secret", "9");
    assert_eq!(log.len(), 2, "{log:?}");
    for (line, parts) in log.iter().zip([
        [r#"["keyed"]"#, "reason=QuotaExceeded", "retry_after=Some("],
        [r#"["cheap"]"#, "reason=CostImpossible", "retry_after=None"],
    ]) {
        for part in ["DEBUG", "tower_throttle::denied", "shadow=true"]
            .iter()
            .chain(&parts)
        {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("sk-secret"), "{line}");
    }
    let log = logged(|| assert_eq!(ask(&layer, plain()).status, 200));
    assert_one_line(
        &log,
        r#"DEBUG|["keyed"]|reason=KeyMissing|x-api-key|shadow=true"#,
    );
    // What an enforced policy would be a failure for is said once, and as what it is.
    let (layer, _) = layer_with([by_peer], |builder| builder);
    let log = logged(|| {
        for _ in 0..3 {
            assert_eq!(ask(&layer, plain()).status, 200);
        }
    });
    assert_one_line(
        &log,
        "ERROR|tower_throttle::wiring|a shadow policy has no key for any request",
    );
    #[derive(Clone)]
    struct User;
    let by_user = Policy::new("user", FixedWindow::per_hour(1));
    let by_user = by_user.key(key::extension(|_: &User| 1_u64)).shadow();
    let (layer, _) = layer_with([by_user], |builder| builder);
    let log = logged(|| assert_eq!(ask(&layer, plain()).status, 200));
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[1].contains("no request extension"), "{log:?}");
}
