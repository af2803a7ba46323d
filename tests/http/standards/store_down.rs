//! Checklist 11: a store that cannot decide, at once or later.

use super::MODES;
use crate::prelude::*;

/// The answers of a layer on a store that fails at once, and on one that fails later.
fn answers(choice: OnStoreFailure, headers: HeaderFormat) -> [Answer; 2] {
    let (layer, _) = layer_with([api(), day()], |builder| {
        builder.on_store_failure(choice).headers(headers)
    });
    let later = Slow::new(Down);
    later.gate.add_permits(1);
    let answers = [layer.clone().store(Down), layer.store(later)].map(|layer| ask(&layer, plain()));
    for answer in &answers {
        let decision = answer.decision.as_ref().expect("a decision");
        assert_eq!(decision.source(), Source::StoreFailure);
        assert_eq!(decision.policies().len(), 0);
        let reported = format!("{:?} {}", answer.headers, answer.text());
        for part in ["redis", "internal", "6379", "route", DOWN_BECAUSE] {
            assert!(!reported.contains(part), "{reported}");
        }
    }
    answers
}

#[test]
fn allowing_forwards_and_sends_only_known_fields() {
    for mode in MODES {
        let fields = match mode {
            HeaderFormat::Draft10 => {
                "\nRateLimit-Policy: \"api\";q=100;w=60, \"day\";q=5000;w=86400"
            }
            _ => "",
        };
        for answer in answers(OnStoreFailure::Allow, mode) {
            answer.assert_is(&format!("HTTP/1.1 200 OK{fields}\n\nhello"));
            assert_eq!(answer.decision.unwrap().verdict(), Verdict::Allowed);
        }
    }
}

#[test]
fn denying_is_503_in_every_mode_and_has_no_limits() {
    for mode in MODES {
        for answer in answers(OnStoreFailure::Deny, mode) {
            answer.assert_is(
                r#"HTTP/1.1 503 Service Unavailable
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 5

{"type":"about:blank","title":"Service Unavailable","status":503}"#,
            );
            assert_eq!(answer.decision.unwrap().verdict(), Verdict::Denied);
        }
    }
}

#[test]
fn jitter_is_added_for_a_failing_store_too() {
    let (layer, _) = layer_with([api()], |builder| {
        let deny = builder.on_store_failure(OnStoreFailure::Deny);
        deny.retry_after_jitter(Duration::from_secs(10))
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
    ask(&layer.store(Down), plain()).assert_is("HTTP/1.1 200 OK\n\nhello");
}
