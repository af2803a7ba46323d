//! Bans over HTTP: what a banned client receives, and what is a strike.

use crate::{
    prelude::*,
    settle::{Frames, Part, as_asked, ask_for, dropped::begin, grpc::status_field},
};

const MINUTE: Duration = Duration::from_secs(60);

fn bans() -> Policy {
    Policy::new("bans", Penalty::after(3).lasting(5 * MINUTE)).shared()
}

fn few() -> Policy {
    Policy::new("few", FixedWindow::per_day(2)).shared()
}

fn answering(layer: &RateLimitLayer, request: Request<Full<Bytes>>) -> Answer {
    ask_service(layer.layer(service_fn(as_asked)), request)
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
    let reasons = [(); 3].map(|()| ask(&layer, plain()).reason.expect("a denial"));
    let exceeded = DenialReason::QuotaExceeded;
    assert_eq!(reasons, [exceeded, exceeded, DenialReason::Banned]);
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
    let grpc = ask(&layer, as_grpc(plain()));
    for (name, value) in [
        ("grpc-status", "8"),
        ("grpc-message", "temporarily banned"),
        ("grpc-retry-pushback-ms", "86340000"),
    ] {
        assert_eq!(grpc.headers[name], value);
    }
}

/// What a banned client receives in each format: it may send nothing until the ban ends.
#[test]
fn no_format_announces_strikes_as_an_allowance() {
    for (format, fields) in [
        (HeaderFormat::Draft10, "\nRateLimit: \"bans\";r=0;t=300"),
        (
            HeaderFormat::Draft7,
            "\nRateLimit: limit=0, remaining=0, reset=300",
        ),
        (
            HeaderFormat::Draft6,
            "\nRateLimit-Limit: 0\nRateLimit-Remaining: 0\nRateLimit-Reset: 300",
        ),
        (
            HeaderFormat::XRateLimitDelta,
            "\nX-RateLimit-Limit: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 300",
        ),
        (HeaderFormat::None, ""),
    ] {
        let settled = bans().settle_by(settle::status([404]));
        let (layer, _) = layer_with([settled], |builder| builder.headers(format));
        for _ in 0..3 {
            ask_for(&layer, 404).assert_is("HTTP/1.1 404 Not Found\n\nhello");
        }
        ask_for(&layer, 200).assert_is(&format!(
            r#"HTTP/1.1 429 Too Many Requests
Content-Type: application/problem+json
Cache-Control: no-store
Retry-After: 300{fields}

{{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"violated-policies":["bans"]}}"#,
        ));
    }
}

#[test]
fn what_the_settler_says_are_strikes() {
    for (status, strikes) in [(200, 0), (404, 1), (401, 1), (500, 0)] {
        let (layer, _) = layer_of([few(), bans().settle_by(settle::status([401, 404]))]);
        assert_eq!(ask_for(&layer, status).status, status);
        assert_eq!(strikes_of(&layer), strikes, "{status}");
    }
    let by_hand = |outcome: &Outcome<'_>| {
        assert_eq!(outcome.held(), 1);
        Settle::Units(2)
    };
    let (layer, _) = layer_of([bans().settle_by(by_hand)]);
    ask_for(&layer, 401);
    assert_eq!(strikes_of(&layer), 2);
    ask_for(&layer, 401);
    assert_eq!(ask_for(&layer, 200).reason, Some(DenialReason::Banned));
}

fn strikes_of(layer: &RateLimitLayer) -> u64 {
    let buckets = buckets_of(layer, &plain());
    let peeked = at_once(buckets.peek()).expect("a decision");
    let bans = peeked.policies().find(|policy| policy.name() == "bans");
    3 - bans.expect("the penalty").remaining()
}

/// Clients that hang up, services that time out and handlers that panic. A window charges them.
#[test]
fn a_request_without_a_response_is_no_strike() {
    let settlers: [fn(Policy) -> Policy; 5] = [
        |policy| policy.settle_by(settle::failures()),
        |policy| policy.settle_by(settle::status([401, 404])),
        |policy| policy.settle_by(settle::header("x-strikes")),
        |policy| policy.settle_by(|_: &Outcome<'_>| Settle::Full),
        |policy| policy.settle_by(|_: &Outcome<'_>| Settle::AtEnd),
    ];
    for settle in settlers {
        for (policy, dropped, status) in [(bans(), 20, 200), (few(), 2, 429)] {
            let (layer, _) = layer_of([settle(policy)]);
            for _ in 0..dropped {
                drop(begin(&layer));
            }
            assert_eq!(ask(&layer, plain()).status, status, "{layer:?}");
        }
    }
}

/// The status of a gRPC call is in the trailers: who hangs up before them gets no strike.
#[test]
fn a_call_that_is_dropped_before_its_end_is_no_strike() {
    let (layer, _) = layer_of([bans().settle_by(settle::failures())]);
    let call = |polls: usize| {
        let parts = [Part::Data("part"), Part::Trailers(status_field(5))];
        let response = Response::builder().header("content-type", "application/grpc");
        let response = response.body(Frames::new(parts)).expect("a response");
        let mut body = responding(&layer, plain(), response).into_body();
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

#[test]
fn a_ban_of_a_requests_caller_leaves_others_alone() {
    let by_key = Policy::new("bans", Penalty::after(3)).key(key::header("x-api-key"));
    let (layer, _) = layer_of([by_key]);
    let of = |caller: &str| get([("x-api-key", caller)]);
    let statuses = || ["ann", "bob"].map(|caller| ask(&layer, of(caller)).status.as_u16());
    let request = of("ann");
    let buckets = buckets_of(&layer, &request);
    at_once(buckets.ban(MINUTE)).expect("a ban");
    assert_eq!(statuses(), [429, 200]);
    at_once(buckets.reset()).expect("a reset");
    assert_eq!(statuses(), [200, 200]);
    let _ = at_once(buckets.strike(3)).expect("strikes");
    assert_eq!(statuses(), [429, 200]);
    let debit = at_once(buckets.debit(5)).expect_err("nothing to debit");
    let credit = at_once(buckets.credit(5)).expect_err("nothing to credit");
    assert!(debit.is_unsupported() && credit.is_unsupported());
    assert_eq!(statuses(), [429, 200]);
}

/// A tier may be a penalty of its own, and has no cost. A penalty that does not apply is not in the
/// check that decides.
#[test]
fn a_request_may_choose_its_penalty_or_none() {
    let [strict, lenient] =
        [1, 3].map(|strikes| Quota::try_from(Penalty::after(strikes)).expect("a quota"));
    let tiered = bans()
        .quota_by(move |head| match head.headers().contains_key("strict") {
            true => strict,
            false => lenient,
        })
        .settle_by(settle::status([404]));
    let only_writes = bans().settle_by(settle::status([404]));
    let only_writes = only_writes.when(|head| head.headers().contains_key("write"));
    let (tiered, writes) = (layer_of([tiered]).0, layer_of([only_writes]).0);
    let rows = |layer: &RateLimitLayer, rows: &str| {
        for row in rows.split(", ") {
            let words: Vec<_> = row.split(' ').collect();
            let [answer, field, status] = words[..] else {
                panic!("{row}");
            };
            let request = get([("answer", answer), (field, "1")]);
            assert_eq!(answering(layer, request).status.as_str(), status, "{row}");
        }
    };
    rows(
        &tiered,
        "404 plain 404, 200 plain 200, 404 strict 404, 200 plain 429",
    );
    rows(&writes, &["404 plain 404"; 4].join(", "));
    rows(&writes, &["404 write 404"; 3].join(", "));
    rows(&writes, "200 write 429, 200 plain 200");
}
