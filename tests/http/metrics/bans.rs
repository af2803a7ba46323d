//! Requests of banned callers, and that each denial is counted as its response says.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, service_fn};
use tower_throttle::{
    DenialReason, FixedWindow, Hold, Limiter, Lists, MemoryStore, OnStoreFailure, Penalty, Policy,
    RateLimitLayer, key, settle,
};

use super::{assert_counted, counted};
use crate::support::web::{
    Answer, Down, as_grpc, ask, ask_service, at_once, cost_in, get, layer_of, layer_with, plain,
};

const MINUTE: Duration = Duration::from_secs(60);

fn few() -> Policy {
    Policy::new("few", FixedWindow::per_day(2)).shared()
}

/// Two denials by others start a ban.
fn bans() -> Policy {
    Policy::new("bans", Penalty::after(2)).shared()
}

fn is_of(answer: &Answer, reason: DenialReason) -> bool {
    answer.reason == Some(reason)
}

/// The second denial starts the ban. Then both policies deny.
#[test]
fn a_ban_is_counted_by_itself_over_http_and_grpc() {
    let (layer, _) = layer_of([few(), bans().strike_on_denial()]);
    for _ in 0..2 {
        assert_eq!(ask(&layer, plain()).status, 200);
    }
    let denied = ask(&layer, plain());
    assert!(is_of(&denied, DenialReason::QuotaExceeded));
    for is_grpc in [true, false, true] {
        let request = if is_grpc { as_grpc(plain()) } else { plain() };
        assert!(is_of(&ask(&layer, request), DenialReason::Banned));
    }
    assert_counted(
        &layer.metrics(),
        "allowed 2, denied 1, banned 3, by store 6, few: allowed 1, few: near 1, \
         few: denied 4, bans: allowed 3, bans: denied 3",
    );
}

/// The only policy bans, so all policies deny, and it decides directly.
#[test]
fn a_ban_by_the_only_policy_is_counted_as_such() {
    let (layer, _) = layer_of([bans()]);
    let request = plain();
    let buckets = layer.buckets(&(&request).into()).expect("a key");
    at_once(buckets.ban(MINUTE)).expect("a ban");
    for _ in 0..2 {
        assert!(is_of(&ask(&layer, plain()), DenialReason::Banned));
    }
    let expected = "banned 2, by store 2, bans: denied 2";
    assert_counted(&layer.metrics(), expected);

    let limiter = Limiter::new(MemoryStore::new(), Policy::new("bans", Penalty::after(2)));
    at_once(async {
        limiter.ban("ann", MINUTE).await.expect("a ban");
        assert!(!limiter.check_now("ann").expect("a decision").is_allowed());
        assert!(!limiter.check("ann").await.expect("a decision").is_allowed());
    });
    assert_counted(&limiter.metrics(), expected);
}

/// Every reason that a response has, and requests to which several apply.
#[test]
fn a_request_is_counted_by_the_reason_of_its_response() {
    use DenialReason as Why;
    let banned = |policies: [Policy; 2]| {
        let (layer, _) = layer_of(policies);
        let buckets = layer.buckets(&(&plain()).into()).expect("a key");
        at_once(buckets.ban(MINUTE)).expect("a ban");
        layer
    };
    let costly = || few().cost_by(cost_in("cost"));
    let used_up = |layer: RateLimitLayer| {
        assert_eq!(ask(&layer, get([("cost", 2)])).status, 200);
        layer
    };
    let failing = few().on_store_failure(OnStoreFailure::Deny);
    let lists = Lists::new().deny_keys(["ann"]).expect("lists");
    let keyed = || Policy::new("keyed", FixedWindow::per_day(2)).key(key::header("x-api-key"));
    let (listed, _) = layer_with([keyed()], |builder| builder.lists(lists));
    let (unwired, _) = layer_of([FixedWindow::per_day(2).into()]);
    let (one, two) = (layer_of([costly()]).0, layer_of([costly(), bans()]).0);
    for (why, result, layer, cost, name) in [
        (Why::QuotaExceeded, "denied", used_up(one), 1, "ann"),
        (Why::QuotaExceeded, "denied", used_up(two), 1, "ann"),
        (Why::Banned, "banned", banned([costly(), bans()]), 1, "ann"),
        (Why::Banned, "banned", banned([bans(), costly()]), 1, "ann"),
        (
            Why::CostImpossible,
            "impossible",
            banned([costly(), bans()]),
            9,
            "ann",
        ),
        (
            Why::CostImpossible,
            "impossible",
            banned([bans(), costly()]),
            9,
            "ann",
        ),
        (Why::KeyMissing, "key_missing", layer_of([keyed()]).0, 1, ""),
        (Why::Listed, "listed", listed, 1, "ann"),
        (
            Why::StoreFailed,
            "store_failed",
            layer_of([failing]).0.store(Down),
            1,
            "ann",
        ),
        (Why::Misconfigured, "misconfigured", unwired, 1, "ann"),
    ] {
        let count = || counted(&layer.metrics()).get(result).copied().unwrap_or(0);
        let (before, total) = (count(), layer.metrics().requests.total());
        let request = get([("cost", cost.to_string()), ("x-api-key", name.into())]);
        assert!(is_of(&ask(&layer, request), why), "{why:?}");
        assert_eq!(count(), before + 1, "{why:?}");
        assert_eq!(layer.metrics().requests.total(), total + 1, "{why:?}");
    }
}

/// Returns how many bans the policy `bans` has started.
fn started(layer: &RateLimitLayer) -> u64 {
    let seen = layer.metrics();
    let bans = seen.bans().find(|(policy, _)| *policy == "bans");
    bans.expect("the penalty").1
}

/// By denials, by responses, by a handler's `Hold`, and by hand.
#[test]
fn each_ban_that_starts_is_counted_once() {
    let (denying, _) = layer_of([few(), bans().strike_on_denial()]);
    for expected in [0, 0, 0, 1, 1] {
        ask(&denying, plain());
        assert_eq!(started(&denying), expected);
    }

    let answers = |status: StatusCode| {
        service_fn(move |_: Request<Full<Bytes>>| async move {
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        })
    };
    let lost = StatusCode::NOT_FOUND;
    let (responding, _) = layer_of([bans().settle_by(settle::status([404]))]);
    for (status, expected) in [(lost, 0), (StatusCode::OK, 0), (lost, 1), (lost, 1)] {
        ask_service(responding.layer(answers(status)), plain());
        assert_eq!(started(&responding), expected);
    }

    let (handling, _) = layer_of([bans().settle_by(settle::status([404]))]);
    let strikes = service_fn(|request: Request<Full<Bytes>>| async move {
        let hold: Hold = request.extensions().get().cloned().expect("a hold");
        assert!(hold.settle("bans", 2));
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    for expected in [1, 1] {
        ask_service(handling.layer(strikes), plain());
        assert_eq!(started(&handling), expected);
    }

    let (by_hand, clock) = layer_of([bans()]);
    let request = plain();
    let buckets = by_hand.buckets(&(&request).into()).expect("a key");
    at_once(async {
        buckets.ban(MINUTE).await.expect("a ban");
        buckets.ban(2 * MINUTE).await.expect("a longer ban");
        let _ = buckets.strike(2).await.expect("strikes");
        assert_eq!(started(&by_hand), 1);
        clock.advance(2 * MINUTE);
        let _ = buckets.strike(1).await.expect("a strike");
        assert_eq!(started(&by_hand), 1);
        let _ = buckets.strike(1).await.expect("a strike");
        assert_eq!(started(&by_hand), 2);
    });
    let text = by_hand.metrics().to_prometheus();
    let line = r#"tower_throttle_bans_total{limiter="default",policy="bans"} 2"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}

/// What a shadow policy settles starts no ban, although its bucket says so.
#[test]
fn a_shadow_policy_that_settles_starts_none() {
    let (layer, _) = layer_of([bans().shadow().settle_by(settle::status([200]))]);
    for _ in 0..5 {
        assert_eq!(ask(&layer, plain()).status, 200);
    }
    assert_eq!(started(&layer), 0);
    let shadow = layer
        .metrics()
        .policy("bans")
        .map(|checks| checks.shadow_denied);
    assert_eq!(shadow, Some(3));
}
