//! Section 3 of the page: its examples, byte for byte.

use std::future::pending;

use crate::prelude::*;

#[test]
fn two_policies_that_allow() {
    let (layer, clock) = layer_of([api(), day()]);
    ask(&layer, get([("api", 0), ("day", 4_899)]));
    clock.advance(Duration::from_secs(86_400 - 36_000));
    ask(&layer, get([("api", 40), ("day", 1)])).assert_is(
        r#"HTTP/1.1 200 OK
RateLimit-Policy: "api";q=100;w=60, "day";q=5000;w=86400
RateLimit: "api";r=60;t=36, "day";r=100;t=36000

hello"#,
    );
}

#[test]
fn a_denial_by_one_of_two_policies() {
    denied_by_api(|builder| builder).assert_is(
        r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 1
RateLimit-Policy: "api";q=100;w=60, "day";q=5000;w=86400
RateLimit: "api";r=0;t=1

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["api"]}"#,
    );
}

/// The bucket is empty, the next unit comes in 0.35 s, and it is 1795242000 s; `day` has room.
fn denied_by_api(set: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder) -> Answer {
    let (layer, clock) = layer_with([api(), day()], set);
    clock.set_us(1_795_242_000_000_000 - 250_000);
    ask(&layer, get([("api", 100), ("day", 1)]));
    clock.advance(Duration::from_millis(250));
    let answer = ask(&layer, plain());
    let wait = answer.decision.as_ref().and_then(|it| it.retry_after());
    assert_eq!(wait, Some(Duration::from_millis(350)));
    answer
}

#[test]
fn a_denial_by_both_policies() {
    let (layer, clock) = layer_of([api(), day()]);
    ask(&layer, get([("api", 0), ("day", 5_000)]));
    clock.advance(Duration::from_millis((86_400 - 36_000) * 1_000 - 250));
    ask(&layer, get([("api", 100), ("day", 0)]));
    clock.advance(Duration::from_millis(250));
    ask(&layer, plain()).assert_is(
        r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 36000
RateLimit-Policy: "api";q=100;w=60, "day";q=5000;w=86400
RateLimit: "api";r=0;t=1, "day";r=0;t=36000

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["api","day"]}"#,
    );
}

#[test]
fn a_denial_of_a_cost_of_10_with_4_left() {
    let (layer, _) = layer_of([api()]);
    ask(&layer, get([("api", 96)]));
    ask(&layer, get([("api", 10)])).assert_is(
        r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 4
RateLimit-Policy: "api";q=100;w=60
RateLimit: "api";r=4;t=4

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["api"]}"#,
    );
}

#[test]
fn an_impossible_cost() {
    let (layer, _) = layer_of([api()]);
    ask(&layer, get([("api", 40)]));
    ask(&layer, get([("api", 250)])).assert_is(
        r#"HTTP/1.1 403 Forbidden
Content-Type: application/problem+json
Cache-Control: no-store
RateLimit-Policy: "api";q=100;w=60
RateLimit: "api";r=60

{"type":"about:blank","title":"Forbidden","status":403,"detail":"Cost 250 exceeds policy \"api\" (100).","violated-policies":["api"]}"#,
    );
}

/// The release time of a permit is unknown: no `t`, and a wait of a second.
#[test]
fn a_concurrency_limit_that_allows_and_denies() {
    let in_flight = Policy::new("inflight", Concurrency::new(10)).shared();
    let (layer, _) = layer_of([in_flight.cost_by(cost_in("inflight"))]);
    let stuck = |request: Request<Full<Bytes>>| {
        let service = layer.layer(service_fn(|_| {
            pending::<Result<Response<Full<Bytes>>, Infallible>>()
        }));
        let mut answer = Box::pin(service.oneshot(request));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(answer.as_mut().poll(&mut cx).is_pending());
        answer
    };
    let six = stuck(get([("inflight", 6)]));
    ask(&layer, plain()).assert_is(
        r#"HTTP/1.1 200 OK
RateLimit-Policy: "inflight";q=10;qu="concurrent-requests"
RateLimit: "inflight";r=3

hello"#,
    );
    let four = stuck(get([("inflight", 4)]));
    ask(&layer, plain()).assert_is(
        r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 1
RateLimit-Policy: "inflight";q=10;qu="concurrent-requests"
RateLimit: "inflight";r=0

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["inflight"]}"#,
    );
    drop((six, four));
}

/// An impossible cost has no reset.
#[test]
fn older_forms_of_an_answer_that_allows_of_a_denial_and_of_an_impossible_cost() {
    for (headers, allowed, denied, impossible) in [
        (
            HeaderFormat::Draft6,
            "\nRateLimit-Limit: 100\nRateLimit-Remaining: 60\nRateLimit-Reset: 36\nRateLimit-Policy: 100;w=60",
            "\nRateLimit-Limit: 100\nRateLimit-Remaining: 0\nRateLimit-Reset: 1\nRateLimit-Policy: 100;w=60",
            "\nRateLimit-Limit: 100\nRateLimit-Remaining: 100\nRateLimit-Policy: 100;w=60",
        ),
        (
            HeaderFormat::Draft7,
            "\nRateLimit: limit=100, remaining=60, reset=36\nRateLimit-Policy: 100;w=60",
            "\nRateLimit: limit=100, remaining=0, reset=1\nRateLimit-Policy: 100;w=60",
            "\nRateLimit: limit=100, remaining=100\nRateLimit-Policy: 100;w=60",
        ),
        (
            HeaderFormat::XRateLimitEpoch,
            "\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 60\nX-RateLimit-Reset: 1795242024",
            "\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795242060",
            "\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 100",
        ),
        (
            HeaderFormat::XRateLimitDelta,
            "\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 60\nX-RateLimit-Reset: 24",
            "\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60",
            "\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 100",
        ),
        (HeaderFormat::None, "", "", ""),
    ] {
        let layer = |policies: &[Policy]| {
            layer_with(policies.to_vec(), |builder| builder.headers(headers)).0
        };
        let answer = ask(&layer(&[api(), day()]), get([("api", 40), ("day", 10)]));
        answer.assert_is(&format!("HTTP/1.1 200 OK{allowed}\n\nhello"));
        denied_by_api(|builder| builder.headers(headers)).assert_is(&format!(
            r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 1{denied}

{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["api"]}}"#,
        ));
        ask(&layer(&[api()]), get([("api", 250)])).assert_is(&format!(
            r#"HTTP/1.1 403 Forbidden
Content-Type: application/problem+json
Cache-Control: no-store{impossible}

{{"type":"about:blank","title":"Forbidden","status":403,"detail":"Cost 250 exceeds policy \"api\" (100).","violated-policies":["api"]}}"#,
        ));
    }
}

#[test]
fn older_policies_have_the_burst() {
    let burst = || Policy::new("api", TokenBucket::per_second(10).burst(20)).key(key::global());
    for headers in [HeaderFormat::Draft6, HeaderFormat::Draft7] {
        let (layer, _) = layer_with([burst()], |builder| builder.headers(headers));
        let answer = ask(&layer, plain());
        assert_eq!(answer.field("ratelimit-policy").unwrap(), "10;w=1;burst=20");
    }
}

/// Returns the `pk` of both fields of an answer and of a denial, which must be the same.
#[track_caller]
fn partition(secret: &str, policy: &str, key: &str) -> String {
    let policy = Policy::new(policy, TokenBucket::per_minute(100)).key(key::header("x-api-key"));
    let (layer, _) = layer_with([policy.cost_by(cost_in("api"))], |builder| {
        builder.partition_key_secret(secret.as_bytes())
    });
    let mut seen = BTreeSet::new();
    for cost in ["1", "100"] {
        let answer = ask(&layer, get([("x-api-key", key), ("api", cost)]));
        for name in ["ratelimit", "ratelimit-policy"] {
            let text = answer.field(name).unwrap();
            seen.insert(text.rsplit_once(";pk=").unwrap().1.to_owned());
        }
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
    seen.pop_first().unwrap()
}

#[test]
fn a_partition_key_is_stable_and_differs_by_policy_key_and_secret() {
    let found = partition("secret", "api", "ann");
    assert_eq!(found.len(), ":niMHFEukyMqOsPxA:".len());
    assert_eq!(partition("secret", "api", "ann"), found);
    assert_ne!(partition("secret", "web", "ann"), found);
    assert_ne!(partition("secret", "api", "bob"), found);
    assert_ne!(partition("other", "api", "ann"), found);

    let policy = Policy::new("api", TokenBucket::per_minute(100)).key(key::header("x-api-key"));
    let set = |builder: RateLimitLayerBuilder| builder.partition_key_secret(b"secret");
    let (layer, _) = layer_with([policy.cost(40)], set);
    ask(&layer, get([("x-api-key", "ann")])).assert_is(&format!(
        r#"HTTP/1.1 200 OK
RateLimit-Policy: "api";q=100;w=60;pk={found}
RateLimit: "api";r=60;t=36;pk={found}

hello"#,
    ));
}

#[test]
fn a_partition_key_shows_no_part_of_the_key() {
    use base64::{Engine, engine::general_purpose::STANDARD};

    // As long as the hash, and longer, so that the key itself would fit.
    for key in ["192.0.2.100.", "an-api-key-of-more-than-12-bytes"] {
        let found = partition("secret", "api", key);
        let bytes = STANDARD.decode(found.trim_matches(':')).unwrap();
        for part in key.as_bytes().windows(4) {
            assert!(!bytes.windows(4).any(|window| window == part));
        }
    }
}
