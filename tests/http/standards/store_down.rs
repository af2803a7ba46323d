//! Checklist 11: a store that cannot decide.

use http::StatusCode;
use tower::Layer;
use tower_throttle::{
    HeaderFormat, OnStoreFailure, Quota, RateLimitLayer, Source, TokenBucket, Verdict,
};

use super::MODES;
use crate::support::web::{
    Answer, DOWN_BECAUSE, Down, api, ask, at_once, day, layer_on, layer_with, plain, read,
};

fn down(choice: OnStoreFailure, headers: HeaderFormat) -> RateLimitLayer {
    let (layer, _) = layer_with([api(), day()], |builder| {
        builder.on_store_failure(choice).headers(headers)
    });
    layer.store(Down)
}

#[track_caller]
fn assert_tells_nothing(answer: &Answer) {
    let reported = format!("{:?} {}", answer.headers, answer.text());
    for part in ["redis", "internal", "6379", "route", DOWN_BECAUSE] {
        assert!(!reported.contains(part), "{reported}");
    }
}

#[test]
fn allowing_forwards_and_sends_only_known_fields() {
    for mode in MODES {
        let answer = ask(&down(OnStoreFailure::Allow, mode), plain());
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.text(), "hello");
        if mode == HeaderFormat::Draft10 {
            assert_eq!(answer.names(), ["ratelimit-policy"]);
            assert_eq!(
                answer.field("ratelimit-policy").unwrap(),
                r#""api";q=100;w=60, "day";q=5000;w=86400"#
            );
        } else {
            assert_eq!(answer.names(), Vec::<&str>::new(), "{mode:?}");
        }
        assert_tells_nothing(&answer);
    }
}

#[test]
fn denying_is_503_in_every_mode_and_has_no_limits() {
    for mode in MODES {
        let answer = ask(&down(OnStoreFailure::Deny, mode), plain());
        answer.assert_is(
            r#"HTTP/1.1 503 Service Unavailable
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 5

{"type":"about:blank","title":"Service Unavailable","status":503}"#,
        );
        assert_tells_nothing(&answer);
    }
}

#[test]
fn the_decision_reports_its_source() {
    let allowed = ask(&down(OnStoreFailure::Allow, HeaderFormat::Draft10), plain());
    let decision = allowed.decision.unwrap();
    assert_eq!(decision.source(), Source::StoreFailure);
    assert_eq!(decision.verdict(), Verdict::Allowed);
    assert_eq!(decision.policies().len(), 0);

    let denied = ask(&down(OnStoreFailure::Deny, HeaderFormat::Draft10), plain());
    let decision = denied.decision.unwrap();
    assert_eq!(decision.source(), Source::StoreFailure);
    assert_eq!(decision.verdict(), Verdict::Denied);
}

#[test]
fn deciding_in_this_process_is_the_default() {
    let layer = layer_on(Down, api());
    for left in (0..100).rev() {
        let answer = ask(&layer, plain());
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.decision.unwrap().source(), Source::Local);
        let limit = answer.headers["ratelimit"].to_str().unwrap().to_owned();
        assert!(limit.starts_with(&format!("\"api\";r={left};")), "{limit}");
        let policy = &answer.headers["ratelimit-policy"];
        assert_eq!(policy, "\"api\";q=100;w=60");
    }
    let denied = ask(&layer, plain());
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.number("retry-after"), 1);
    assert_eq!(denied.decision.unwrap().source(), Source::Local);
}

#[test]
fn jitter_is_added_for_a_failing_store_too() {
    let (layer, _) = layer_with([api()], |builder| {
        let deny = builder.on_store_failure(OnStoreFailure::Deny);
        deny.retry_after_jitter(std::time::Duration::from_secs(10))
    });
    let layer = layer.store(Down);
    for _ in 0..100 {
        let seconds = ask(&layer, plain()).number("retry-after");
        assert!((5..=15).contains(&seconds));
    }
}

#[test]
fn a_quota_that_requests_choose_is_not_shown_before_it_is_known() {
    let quota: Quota = TokenBucket::per_minute(7).try_into().unwrap();
    let (layer, _) = layer_with([api().quota_by(move |_| quota)], |builder| {
        builder.on_store_failure(OnStoreFailure::Allow)
    });
    let answer = ask(&layer.store(Down), plain());
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.names(), Vec::<&str>::new());
}

#[test]
fn a_store_that_fails_later_is_answered_the_same() {
    use tower::Service;

    for (choice, status) in [
        (OnStoreFailure::Allow, StatusCode::OK),
        (OnStoreFailure::Deny, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let slow = crate::support::web::Slow::new(Down);
        slow.gate.add_permits(1);
        let layer = down(choice, HeaderFormat::Draft10).store(slow);
        let mut service = layer.layer(tower::service_fn(crate::support::web::hello));
        let later = read(at_once(service.call(plain())).unwrap());
        let now = ask(&down(choice, HeaderFormat::Draft10), plain());
        assert_eq!(later.status, status);
        assert_eq!(
            (later.status, later.headers, later.body),
            (now.status, now.headers, now.body)
        );
    }
}
