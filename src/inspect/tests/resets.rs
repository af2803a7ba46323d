//! What a reset forgets.

use std::time::Duration;

use super::{HOUR, World, buckets, caller, debit, left, look_up, only, plan, remaining};
use crate::{
    FixedWindow, Key, Limiter, Penalty, Policy, Quota, TokenBucket, inspect::ResetBucket, key,
};

fn names(reset: &[ResetBucket]) -> Vec<&str> {
    reset.iter().map(|reset| &*reset.policy).collect()
}

#[tokio::test(start_paused = true)]
async fn each_policy_or_one_is_reset_and_shared_ones_only_by_name() {
    for world in [World::in_memory(), World::in_redis()] {
        let layer = world.layer([
            plan(),
            Policy::new("day", FixedWindow::per_day(10)).key(key::header("x-api-key")),
            Policy::new("shadow", FixedWindow::per_day(10))
                .key(key::header("x-api-key"))
                .shadow(),
            Policy::new("all", FixedWindow::per_day(10)).shared(),
            Policy::new("user", FixedWindow::per_day(10)).key(key::header("x-user")),
        ]);
        let charged = buckets(&layer, &[("x-api-key", "k1"), ("x-user", "ann")]);
        let other = buckets(&layer, &[("x-api-key", "k2"), ("x-user", "ann")]);
        let left = async || {
            let typed = caller(&["header:x-api-key=k1", "header:x-user=ann"]);
            let states = layer.inspect().look_up(&typed, None).await;
            let left = states
                .into_iter()
                .map(|state| state.bucket.expect("a bucket"));
            left.map(|bucket| bucket.decision.remaining())
                .collect::<Vec<_>>()
        };
        debit(&charged, 4).await;
        debit(&other, 1).await;
        assert_eq!(left().await, [6, 6, 6, 5, 5]);
        let typed = caller(&["header:x-api-key=k1"]);
        for (policy, names, expected) in [
            (Some("none"), &[][..], [6, 6, 6, 5, 5]),
            (Some("day"), &["day"], [6, 10, 6, 5, 5]),
            (None, &["plan", "day", "shadow"], [10, 10, 10, 5, 5]),
            (Some("all"), &["all"], [10, 10, 10, 10, 5]),
        ] {
            let reset = layer.inspect().reset(&typed, policy).await;
            let own = world.store.fingerprint(&Key::from("k1"));
            let everyone = world.store.fingerprint(&Key::everyone());
            let reset = reset.expect("it is reset").into_iter();
            let reset: Vec<_> = reset.map(|one| (one.policy, one.fingerprint)).collect();
            let fingerprint = if policy == Some("all") { everyone } else { own };
            let names = names.iter().map(|name| ((*name).to_owned(), fingerprint));
            assert_eq!(reset, names.collect::<Vec<_>>(), "{policy:?}");
            assert_eq!(left().await, expected, "{policy:?}");
        }
        assert_eq!(super::left(layer.inspect(), &["k2"], Some("plan")).await, 9);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_lifts_a_ban_of_a_penalty_and_forgets_what_is_held() {
    for world in [World::in_memory(), World::in_redis()] {
        let limiter: Limiter = world.limiter([
            Policy::new("bans", Penalty::after(2).lasting(HOUR)),
            Policy::new("held", TokenBucket::per_hour(10)).hold_for(Duration::from_secs(60)),
        ]);
        let reserved = limiter.reserve("ann", 6).await.expect("a decision");
        assert!(reserved.is_allowed());
        drop(limiter.strike("ann", 2).await.expect("a decision"));
        let state = only(look_up(limiter.inspect(), &["ann"], Some("bans")).await);
        let until = state.banned_by_policy_until().expect("a ban");
        let decision = state.bucket.expect("a bucket").decision;
        let ends = Duration::from_micros(decision.decided_at_us()) + HOUR;
        assert_eq!(until, std::time::UNIX_EPOCH + ends);
        let held = only(look_up(limiter.inspect(), &["ann"], Some("held")).await);
        let held = held.bucket.expect("a bucket").decision;
        assert_eq!((held.held_by_all_requests(), held.remaining()), (6, 4));

        let reset = limiter.inspect().reset(&caller(&["ann"]), None).await;
        assert_eq!(names(&reset.expect("it is reset")), ["bans", "held"]);
        let states = look_up(limiter.inspect(), &["ann"], None).await;
        assert_eq!(states[0].banned_by_policy_until(), None);
        let held = &states[1].bucket.as_ref().expect("a bucket").decision;
        assert_eq!((held.held_by_all_requests(), held.remaining()), (0, 10));
        assert!(limiter.peek("ann").await.expect("a decision").is_allowed());
    }
}

/// Of a caller whose request is not known, the buckets of all tiers are reset that are known.
#[tokio::test(start_paused = true)]
async fn all_known_tiers_are_reset() {
    let world = World::in_redis();
    let layer = world.layer([plan().quota_by(|head| match head.headers().get("x-plan") {
        None => Quota::try_from(FixedWindow::per_hour(10)).expect("a quota"),
        Some(_) => Quota::try_from(TokenBucket::per_hour(99)).expect("a quota"),
    })]);
    for fields in [
        &[("x-api-key", "k1")][..],
        &[("x-api-key", "k1"), ("x-plan", "paid")],
    ] {
        debit(&buckets(&layer, fields), 9).await;
    }
    let reset = layer.inspect().reset(&caller(&["k1"]), None).await;
    assert_eq!(names(&reset.expect("it is reset")), ["plan"]);
    for (typed, left) in [
        (&["header:x-api-key=k1"][..], 10),
        (&["header:x-api-key=k1", "header:x-plan=a"], 99),
    ] {
        assert_eq!(
            remaining(layer.inspect().look_up(&caller(typed), None).await),
            left
        );
    }
}

/// The bucket of another caller is not reset in its place.
#[tokio::test(start_paused = true)]
async fn what_names_no_bucket_resets_none() {
    let world = World::in_memory();
    let layer = world.layer([plan()]);
    debit(&buckets(&layer, &[("x-api-key", "k1")]), 9).await;
    let fingerprint = world.store.fingerprint(&Key::from("k1")).to_string();
    for typed in [&*fingerprint, "method:GET"] {
        let reset = layer.inspect().reset(&caller(&[typed]), None).await;
        assert_eq!(reset.expect("nothing fails"), []);
    }
    assert_eq!(left(layer.inspect(), &["k1"], None).await, 1);
}
