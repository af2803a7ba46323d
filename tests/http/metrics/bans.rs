//! Requests of banned callers, and that each denial is counted as its response says.

use super::{assert_counted, counted};
use crate::{prelude::*, settle::ask_for};

const MINUTE: Duration = Duration::from_secs(60);

fn few() -> Policy {
    Policy::new("few", FixedWindow::per_day(2)).shared()
}

fn bans() -> Policy {
    Policy::new("bans", Penalty::after(2)).shared()
}

/// The only policy bans, so all policies deny, and it decides directly.
#[test]
fn a_ban_by_the_only_policy_is_counted_as_such() {
    let layer = banned([bans()]);
    for _ in 0..2 {
        assert_eq!(ask(&layer, plain()).reason, Some(DenialReason::Banned));
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

/// A layer of these policies, whose callers are banned.
fn banned(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    let (layer, _) = layer_of(policies);
    let buckets = buckets_of(&layer, &plain());
    at_once(buckets.ban(MINUTE)).expect("a ban");
    layer
}

#[test]
fn a_request_is_counted_by_the_reason_of_its_response() {
    use DenialReason as Why;
    let costly = || few().cost_by(cost_in("api"));
    let (used_up, _) = layer_of([costly(), bans()]);
    ask(&used_up, get([("api", 2)]));
    let layers = [
        (Why::QuotaExceeded, used_up, 1),
        (Why::Banned, banned([costly(), bans()]), 1),
        (Why::Banned, banned([bans(), costly()]), 1),
        (Why::CostImpossible, banned([costly(), bans()]), 9),
        (Why::CostImpossible, banned([bans(), costly()]), 9),
    ];
    for (why, layer, cost) in layers.into_iter().chain(every_reason(|builder| builder)) {
        let result = match why {
            Why::QuotaExceeded => "denied",
            Why::Banned => "banned",
            Why::CostImpossible => "impossible",
            Why::KeyMissing => "key_missing",
            Why::Listed => "listed",
            Why::StoreFailed => "store_failed",
            _ => "misconfigured",
        };
        let counts = || {
            let seen = layer.metrics();
            let count = counted(&seen).get(result).copied();
            [count.unwrap_or(0), seen.requests.total()]
        };
        let before = counts();
        assert_eq!(ask(&layer, get([("api", cost)])).reason, Some(why));
        assert_eq!(counts(), before.map(|count| count + 1), "{why:?}");
    }
}

fn started(layer: &RateLimitLayer) -> u64 {
    let seen = layer.metrics();
    let bans = seen.bans().find(|(policy, _)| *policy == "bans");
    bans.expect("the penalty").1
}

/// By denials, by responses, by a handler's `Hold`, and by hand.
#[test]
fn each_ban_that_starts_is_counted_once() {
    let by_responses = || bans().settle_by(settle::status([404]));
    let (denying, _) = layer_of([few(), bans().strike_on_denial()]);
    let (responding, _) = layer_of([by_responses()]);
    let (shadow, _) = layer_of([by_responses().shadow()]);
    for (layer, status, expected) in [
        (&denying, 200, &[0, 0, 0, 1, 1][..]),
        (&responding, 404, &[0, 1, 1]),
        // It starts no ban, although its bucket says so.
        (&shadow, 404, &[0, 0, 0]),
    ] {
        for expected in expected {
            ask_for(layer, status);
            assert_eq!(started(layer), *expected);
        }
    }

    let (handling, _) = layer_of([by_responses()]);
    let strikes = service_fn(|request: Request<Full<Bytes>>| {
        let hold: &Hold = request.extensions().get().expect("a hold");
        assert!(hold.settle("bans", 2));
        hello(request)
    });
    for expected in [1, 1] {
        ask_service(handling.layer(strikes), plain());
        assert_eq!(started(&handling), expected);
    }

    let by_hand = banned([bans()]);
    assert_eq!(started(&by_hand), 1);
    let text = by_hand.metrics().to_prometheus();
    let line = r#"tower_throttle_bans_total{limiter="default",policy="bans"} 1"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}
