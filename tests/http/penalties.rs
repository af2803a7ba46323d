//! Bans over HTTP: what a banned client receives, and what is a strike.

use std::{
    convert::Infallible,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    DenialReason, FixedWindow, HeaderFormat, Outcome, Penalty, Policy, RateLimitLayer, RequestHead,
    Settle, key, settle,
};

use crate::support::web::{
    Answer, as_grpc, ask, ask_service, at_once, get, layer_of, layer_with, plain,
};

const MINUTE: Duration = Duration::from_secs(60);

fn bans() -> Policy {
    Policy::new("bans", Penalty::after(3).lasting(5 * MINUTE)).shared()
}

fn few() -> Policy {
    Policy::new("few", FixedWindow::per_day(2)).shared()
}

/// A handler that answers with the status in the field `status`, or 200.
fn answering(layer: &RateLimitLayer, request: Request<Full<Bytes>>) -> Answer {
    let inner = service_fn(|request: Request<Full<Bytes>>| async move {
        let status = request.headers().get("status");
        let status = status.map_or(Ok(StatusCode::OK), |status| {
            StatusCode::from_bytes(status.as_bytes())
        });
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = status.expect("a status");
        Ok::<_, Infallible>(response)
    });
    ask_service(layer.layer(inner), request)
}

#[test]
fn a_banned_client_is_told_when_its_ban_ends() {
    let (layer, clock) = layer_of([few(), bans().strike_on_denial()]);
    ask(&layer, plain()).assert_is(
        r#"HTTP/1.1 200 OK
RateLimit-Policy: "few";q=2;w=86400
RateLimit: "few";r=1;t=86400

hello"#,
    );
    ask(&layer, plain());
    for _ in 0..2 {
        let denied = ask(&layer, plain());
        assert_eq!(denied.reason, Some(DenialReason::QuotaExceeded));
    }
    let last = ask(&layer, plain());
    assert_eq!(last.reason, Some(DenialReason::Banned));
    clock.advance(MINUTE);
    let banned = ask(&layer, plain());
    assert_eq!(banned.reason, Some(DenialReason::Banned));
    banned.assert_is(
        r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 86340
RateLimit-Policy: "few";q=2;w=86400
RateLimit: "few";r=0;t=86340, "bans";r=0;t=240

{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"violated-policies":["few","bans"]}"#,
    );
}

/// What a banned client receives in each format: it may send nothing until the ban ends.
#[test]
fn no_format_announces_strikes_as_an_allowance() {
    for (format, allowed, denied) in [
        (HeaderFormat::Draft10, "", "RateLimit: \"bans\";r=0;t=300\n"),
        (
            HeaderFormat::Draft7,
            "",
            "RateLimit: limit=0, remaining=0, reset=300\n",
        ),
        (
            HeaderFormat::Draft6,
            "",
            "RateLimit-Limit: 0\nRateLimit-Remaining: 0\nRateLimit-Reset: 300\n",
        ),
        (
            HeaderFormat::XRateLimitDelta,
            "",
            "X-RateLimit-Limit: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 300\n",
        ),
        (HeaderFormat::None, "", ""),
    ] {
        let settled = bans().settle_by(settle::status([404]));
        let (layer, _) = layer_with([settled], |builder| builder.headers(format));
        for _ in 0..3 {
            let answer = answering(&layer, get([("status", 404)]));
            assert_eq!(fields(&answer), allowed, "{format:?}");
        }
        let answer = answering(&layer, plain());
        assert_eq!(answer.status, 429);
        assert_eq!(answer.headers["retry-after"], "300");
        assert_eq!(fields(&answer), denied, "{format:?}");
    }
}

/// The fields about limits, as lines.
fn fields(answer: &Answer) -> String {
    let mut fields = String::new();
    for name in [
        "RateLimit-Policy",
        "RateLimit",
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
    ] {
        if let Some(value) = answer.headers.get(name.to_ascii_lowercase()) {
            fields += &format!("{name}: {}\n", value.to_str().expect("text"));
        }
    }
    fields
}

#[test]
fn a_banned_grpc_call_is_told_when_to_retry() {
    let settled = bans().settle_by(settle::status([404]));
    let (layer, _) = layer_of([settled]);
    for _ in 0..3 {
        answering(&layer, get([("status", 404)]));
    }
    let answer = answering(&layer, as_grpc(plain()));
    assert_eq!(answer.headers["grpc-status"], "8");
    assert_eq!(answer.headers["grpc-message"], "temporarily banned");
    assert_eq!(answer.headers["grpc-retry-pushback-ms"], "300000");
}

#[test]
fn what_the_settler_says_are_strikes() {
    for (status, strikes) in [(200, 0), (404, 1), (401, 1), (500, 0)] {
        let (layer, _) = layer_of([few(), bans().settle_by(settle::status([401, 404]))]);
        let answer = answering(&layer, get([("status", status)]));
        assert_eq!(answer.status, status);
        assert_eq!(strikes_of(&layer), strikes, "{status}");
    }
    let by_hand = |outcome: &Outcome<'_>| {
        assert_eq!(outcome.held(), 1);
        match outcome.status() {
            Some(StatusCode::UNAUTHORIZED) => Settle::Units(2),
            _ => Settle::Release,
        }
    };
    let (layer, _) = layer_of([bans().settle_by(by_hand)]);
    answering(&layer, get([("status", 401)]));
    assert_eq!(strikes_of(&layer), 2);
    answering(&layer, get([("status", 401)]));
    assert_eq!(
        answering(&layer, plain()).reason,
        Some(DenialReason::Banned)
    );
}

fn strikes_of(layer: &RateLimitLayer) -> u64 {
    let request = plain();
    let buckets = layer.buckets(&RequestHead::from(&request)).expect("a key");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let peeked = runtime.expect("a runtime").block_on(buckets.peek());
    let peeked = peeked.expect("a decision");
    let bans = peeked.policies().find(|policy| policy.name() == "bans");
    3 - bans.expect("the penalty").remaining()
}

/// Clients that hang up, services that time out and handlers that panic. A window charges them.
#[test]
fn a_request_without_a_response_is_no_strike() {
    let unanswered = |policy: Policy| {
        let (layer, _) = layer_of([policy]);
        for _ in 0..20 {
            let stuck = service_fn(|_: Request<Full<Bytes>>| {
                std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
            });
            let mut request = Box::pin(layer.layer(stuck).oneshot(plain()));
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(denied) = request.as_mut().poll(&mut context) {
                return denied.expect("a response").status().as_u16();
            }
        }
        ask(&layer, plain()).status.as_u16()
    };
    for (at, settle) in [
        |policy: Policy| policy.settle_by(settle::failures()),
        |policy: Policy| policy.settle_by(settle::status([401, 404])),
        |policy: Policy| policy.settle_by(settle::header("x-strikes")),
        |policy: Policy| policy.settle_by(|_: &Outcome<'_>| Settle::Full),
        |policy: Policy| policy.settle_by(|_: &Outcome<'_>| Settle::AtEnd),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(unanswered(settle(bans())), 200, "settler {at}");
        assert_eq!(unanswered(settle(few())), 429, "settler {at}");
    }
}

/// The status of a gRPC call is in the trailers: who hangs up before them gets no strike.
#[test]
fn a_call_that_is_dropped_before_its_end_is_no_strike() {
    let (layer, _) = layer_of([bans().settle_by(settle::failures())]);
    let call = |polls: usize| {
        let inner = service_fn(|_: Request<Full<Bytes>>| async {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("5"));
            let body = Full::new(Bytes::from_static(b"part"));
            let mut response = Response::new(body.with_trailers(async { Some(Ok(trailers)) }));
            let kind = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert("content-type", kind);
            Ok::<_, Infallible>(response)
        });
        let response = at_once(layer.layer(inner).oneshot(as_grpc(plain())));
        let mut body = Box::pin(response.expect("a response").into_body());
        for _ in 0..polls {
            at_once(body.frame());
        }
    };
    for _ in 0..20 {
        call(0);
        call(1);
    }
    assert_eq!(strikes_of(&layer), 0);
    call(2);
    assert_eq!(strikes_of(&layer), 1);
}

#[tokio::test]
async fn a_ban_of_a_requests_caller_leaves_others_alone() {
    let by_key = Policy::new("bans", Penalty::after(3)).key(key::header("x-api-key"));
    let (layer, _) = layer_of([by_key]);
    let inner = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let status = async |caller: &str| {
        let request = get([("x-api-key", caller)]);
        let response = layer.layer(inner).oneshot(request).await;
        response.expect("a response").status().as_u16()
    };
    let request = get([("x-api-key", "ann")]);
    let buckets = layer.buckets(&RequestHead::from(&request)).expect("a key");
    buckets.ban(MINUTE).await.expect("a ban");
    assert_eq!([status("ann").await, status("bob").await], [429, 200]);
    buckets.reset().await.expect("a reset");
    assert_eq!(status("ann").await, 200);
    let _ = buckets.strike(3).await.expect("strikes");
    assert_eq!(status("ann").await, 429);
    let debit = buckets.debit(5).await.expect_err("nothing to debit");
    let credit = buckets.credit(5).await.expect_err("nothing to credit");
    assert!(debit.is_unsupported() && credit.is_unsupported());
    assert_eq!(status("ann").await, 429);
}

/// A tier may be a penalty of its own, and has no cost.
#[test]
fn a_request_may_choose_its_penalty() {
    let strict = Penalty::after(1).try_into().expect("a quota");
    let lenient = Penalty::after(3).try_into().expect("a quota");
    let tiered = bans()
        .quota_by(move |head| match head.headers().contains_key("strict") {
            true => strict,
            false => lenient,
        })
        .settle_by(settle::status([404]));
    let (layer, _) = layer_of([tiered]);
    assert_eq!(answering(&layer, get([("status", 404)])).status, 404);
    assert_eq!(answering(&layer, plain()).status, 200);
    let strike = answering(&layer, get([("status", "404"), ("strict", "1")]));
    assert_eq!(strike.status, 404);
    assert_eq!(answering(&layer, plain()).status, 429);
}

/// The penalty is not in the check that decides, if it does not apply.
#[test]
fn a_penalty_applies_only_when_it_says() {
    let only_writes = bans().settle_by(settle::status([404]));
    let only_writes = only_writes.when(|head| head.headers().contains_key("write"));
    let (layer, _) = layer_of([only_writes]);
    for _ in 0..5 {
        assert_eq!(answering(&layer, get([("status", 404)])).status, 404);
    }
    for _ in 0..3 {
        let answer = answering(&layer, get([("status", "404"), ("write", "1")]));
        assert_eq!(answer.status, 404);
    }
    assert_eq!(answering(&layer, get([("write", 1)])).status, 429);
    assert_eq!(answering(&layer, plain()).status, 200);
}
