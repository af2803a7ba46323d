//! The entries of a control document about a caller.

use std::time::{Duration, SystemTime};

use http::Request;

use super::{HOUR, World, buckets, caller, debit, left, made, only, plan, seen};
use crate::{
    FixedWindow, Key, OnStoreFailure, Policy, Quota, RequestHead, TokenBucket,
    control::{Action, End, Mode},
    inspect::PolicyState,
};

fn quota(limit: u64) -> Quota {
    FixedWindow::per_hour(limit).try_into().expect("a quota")
}

#[tokio::test(start_paused = true)]
async fn an_override_and_a_ban_are_shown_with_the_bucket_below() {
    for world in [World::in_memory(), World::in_redis()] {
        let layer = world.layer([plan()]);
        let control = &world.control;
        made(
            control
                .override_quota("plan", "k1", quota(50))
                .author("ann"),
        )
        .await;
        debit(&buckets(&layer, &[("x-api-key", "k1")]), 20).await;
        made(
            control
                .ban("plan", "k1", in_an_hour(&world))
                .because("scraping"),
        )
        .await;
        made(control.ban("other", "k1", HOUR)).await;
        made(control.deny_key("plan", "k1")).await;
        made(control.allow_ip("203.0.113.0/24")).await;

        let state = seen(layer.inspect(), &["k1"]).await;
        assert_eq!((state.mode, state.quota), (Mode::Enforce, Some(quota(50))));
        let decision = &state.bucket.as_ref().expect("a bucket").decision;
        assert_eq!((decision.remaining(), decision.is_denied()), (30, false));
        assert_eq!(state.banned_by_policy_until(), None);
        let kinds: Vec<_> = state
            .entries
            .iter()
            .map(|entry| kind(&entry.action))
            .collect();
        assert_eq!(kinds, ["override", "ban", "key"]);
        assert_eq!(state.entries[0].author.as_deref(), Some("ann"));
        assert_eq!(state.banned_until, state.entries[1].until);
        assert!(state.banned_until.is_some());
        let request = Request::get("/").header("x-api-key", "k1").body(());
        let request = request.expect("a request");
        let explained = layer.explain(&RequestHead::from(&request));
        assert_eq!(explained.policies[0].banned_until, state.banned_until);
        assert_eq!(explained.policies[0].quota, quota(50));

        let at = async |address: &str| {
            let typed = ["header:x-api-key=k2", address];
            only(layer.inspect().look_up(&caller(&typed), None).await)
        };
        let other = at("ip:203.0.113.7").await;
        assert_eq!((other.banned_until, other.quota), (None, Some(quota(10))));
        let kinds: Vec<_> = other
            .entries
            .iter()
            .map(|entry| kind(&entry.action))
            .collect();
        assert_eq!(kinds, ["range"]);
        assert_eq!(at("ip:203.0.114.7").await.entries, []);

        if world.clock.is_some() {
            world.advance(2 * HOUR).await;
            let state = seen(layer.inspect(), &["k1"]).await;
            assert_eq!(state.banned_until, None);
        }
    }
}

/// Bans end by the clock of a store in memory, and else by that of the machine.
fn in_an_hour(world: &World) -> End {
    match world.clock {
        Some(_) => HOUR.into(),
        None => (SystemTime::now() + HOUR).into(),
    }
}

fn kind(action: &Action) -> &'static str {
    match action {
        Action::Override { .. } => "override",
        Action::Ban { .. } => "ban",
        Action::Mode { .. } => "mode",
        Action::ListIp { .. } => "range",
        Action::ListKey { .. } => "key",
    }
}

/// Returns the name, the mode and the share of each policy.
fn modes(states: &[PolicyState]) -> Vec<(&str, Mode, u8)> {
    let modes = states.iter();
    modes
        .map(|policy| (&*policy.name, policy.mode, policy.enforced_percent))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn policies_are_shown_as_they_are() {
    let world = World::in_memory();
    let tenth = Policy::new("tenth", TokenBucket::per_second(5))
        .enforce_for_percent(10)
        .on_store_failure(OnStoreFailure::share_of(4));
    let shadow = Policy::new("shadow", FixedWindow::per_hour(3)).shadow();
    let all = || [plan(), tenth.clone(), shadow.clone()];
    let layer = world.layer(all());
    let now = layer.inspect().policies();
    let expected = [
        ("plan", Mode::Enforce, 100),
        ("tenth", Mode::Enforce, 10),
        ("shadow", Mode::Shadow, 0),
    ];
    assert_eq!(modes(&now), expected);
    assert_eq!(now[0].quota, Some(quota(10)));
    assert_eq!(now[1].on_store_failure.to_string(), "share of 4");
    assert_eq!((now[0].overrides, now[0].bans), (0, 0));

    let control = &world.control;
    made(control.set_mode("plan", Mode::Off)).await;
    made(control.set_mode("shadow", Mode::Enforce)).await;
    for key in 0..3_u64 {
        made(control.override_quota("tenth", key, "9 per second".parse().expect("a quota"))).await;
        made(control.ban("tenth", key, HOUR)).await;
    }
    made(control.ban("tenth", "soon", Duration::from_secs(9))).await;
    let now = layer.inspect().policies();
    let expected = [
        ("plan", Mode::Off, 0),
        ("tenth", Mode::Enforce, 10),
        ("shadow", Mode::Enforce, 100),
    ];
    assert_eq!(modes(&now), expected);
    assert_eq!((now[1].overrides, now[1].bans), (3, 4));
    world.advance(Duration::from_secs(10)).await;
    assert_eq!(layer.inspect().policies()[1].bans, 3);

    let limiter = world.limiter([
        Policy::new("plan", FixedWindow::per_hour(10)),
        shadow.clone(),
    ]);
    let expected = [("plan", Mode::Off, 0), ("shadow", Mode::Enforce, 100)];
    assert_eq!(modes(&limiter.inspect().policies()), expected);
}

#[tokio::test(start_paused = true)]
async fn the_bucket_of_a_policy_that_is_off_is_shown_and_can_be_reset() {
    for world in [World::in_memory(), World::in_redis()] {
        let layer = world.layer([plan()]);
        let charged = buckets(&layer, &[("x-api-key", "k1")]);
        debit(&charged, 3).await;
        made(world.control.set_mode("plan", Mode::Off)).await;
        let state = seen(layer.inspect(), &["k1"]).await;
        assert_eq!((state.mode, state.quota), (Mode::Off, Some(quota(10))));
        let bucket = state.bucket.as_ref().expect("it is there");
        assert_eq!(bucket.decision.remaining(), 7);
        assert_eq!(state.entries.len(), 1);

        // Its bucket stays, and can be reset.
        let reset = layer.inspect().reset(&caller(&["k1"]), None).await;
        assert_eq!(reset.expect("it is reset").len(), 1);
        made(world.control.clear_mode("plan")).await;
        assert_eq!(left(layer.inspect(), &["k1"], None).await, 10);
    }
}

/// The mode of a policy that is enforced for a share of its callers is that of the caller.
#[tokio::test(start_paused = true)]
async fn each_caller_has_its_own_mode() {
    let world = World::in_redis();
    let half = plan().enforce_for_percent(50);
    let layer = world.layer([half]);
    let mut enforced = 0;
    for number in 0..40 {
        let name = format!("k{number}");
        let state = seen(layer.inspect(), &[&name]).await;
        let charged = buckets(&layer, &[("x-api-key", &name)]);
        let peek = charged.peek().await.expect("Redis");
        let expected = match peek.policies().len() {
            1 => Mode::Enforce,
            _ => Mode::Shadow,
        };
        assert_eq!(state.mode, expected, "{name}");
        assert_eq!(
            state.fingerprint,
            Some(world.store.fingerprint(&Key::from(&name)))
        );
        assert!(state.bucket.is_ok());
        enforced += usize::from(expected == Mode::Enforce);
    }
    assert!((5..35).contains(&enforced), "{enforced}");
    // A ban denies no caller of a shadow policy, and is shown all the same.
    made(world.control.set_mode("plan", Mode::Shadow)).await;
    made(world.control.ban("plan", "k1", in_an_hour(&world))).await;
    let state = seen(layer.inspect(), &["k1"]).await;
    assert_eq!(
        (state.mode, state.banned_until.is_some()),
        (Mode::Shadow, true)
    );
}
