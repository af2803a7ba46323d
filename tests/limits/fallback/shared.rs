//! Which limiters share the buckets of this process, how they are reset, and what cannot be
//! built.

use super::fake_store::{Does, Switch, finish, unavailable};
use crate::support::prelude::*;
use crate::support::web::Down;

fn policy() -> Policy {
    Policy::new("one", TokenBucket::per_hour(20)).shared()
}

fn down() -> Switch {
    Switch::down(&Arc::new(ManualClock::new()))
}

/// Returns how many requests two limiters and two layers on such stores admit together.
fn admitted(store: impl Fn() -> Arc<dyn Store>) -> usize {
    let limiters = [(); 2].map(|()| Limiter::new(store(), policy()));
    let built = RateLimitLayer::builder().store(store()).policy(policy());
    let layers = [
        built.build().unwrap(),
        RateLimitLayer::new(policy()).store(store()),
    ];
    let mut admitted = 0;
    for _ in 0..50 {
        for limiter in &limiters {
            let decision = finish(check(limiter, "ann"));
            assert_eq!(decision.source(), Source::Local);
            admitted += usize::from(decision.is_allowed());
        }
        for layer in &layers {
            admitted += usize::from(ask(layer, plain()).status == 200);
        }
    }
    admitted
}

#[test]
fn all_on_one_store_share_the_buckets_of_this_process() {
    let store = down();
    assert_eq!(admitted(|| Arc::new(store.clone())), 20, "clones");
    let store = Arc::new(down());
    assert_eq!(admitted(|| store.clone()), 20, "an Arc");
    let store = Guarded::new(down());
    assert_eq!(admitted(|| Arc::new(store.clone())), 20, "a guard");
    let store = Guarded::new(Down);
    assert_eq!(admitted(|| Arc::new(store.clone())), 20, "that has its own");
    let store = down();
    let guarded = Guarded::new(Guarded::new(store.clone()));
    assert_eq!(admitted(|| Arc::new(guarded.clone())), 20, "two guards");
    assert_eq!(admitted(|| Arc::new(store.clone())), 0, "the guarded store");
}

#[test]
fn different_stores_do_not_share() {
    assert_eq!(admitted(|| Arc::new(down())), 4 * 20);
    assert_eq!(admitted(|| Arc::new(Guarded::new(down()))), 4 * 20);
    // If the store has no fallback of its own, each limiter and layer has one, and clones of a
    // limiter share it.
    assert_eq!(admitted(|| Arc::new(Down)), 4 * 20);
    let limiter = Limiter::new(Down, policy());
    let clones = [limiter.clone(), limiter.clone(), limiter];
    let checks = clones.iter().cycle().take(90);
    let admitted = checks.filter(|clone| finish(check(clone, "ann")).is_allowed());
    assert_eq!(admitted.count(), 20);
}

#[test]
fn a_reset_also_resets_the_local_buckets() {
    for (is_up, share) in [(true, 1), (false, 1), (true, 4), (false, 4)] {
        let store = down();
        let choice = OnStoreFailure::share_of(share);
        let own = Policy::new("own", FixedWindow::per_hour(8)).on_store_failure(choice);
        let everyone = Policy::new("everyone", TokenBucket::per_hour(1_000)).shared();
        let limiter = limiter_of(store.clone(), [own, everyone.on_store_failure(choice)]);
        let share = u64::from(share);
        let part = 8 / share;
        let drain = |key: &'static str| {
            let checks = (0..20).map(|_| finish(check(&limiter, key)));
            checks.filter(|decision| decision.is_allowed()).count() as u64
        };
        assert_eq!((drain("ann"), drain("bob")), (part, part));
        if is_up {
            store.now(Does::Answers);
            finish(limiter.reset("ann")).unwrap();
            store.now(unavailable());
        } else {
            assert!(finish(limiter.reset("ann")).unwrap_err().is_unavailable());
        }
        let left = left_of(&finish(peek(&limiter, "ann")));
        let everyones = 1_000 / share - 2 * part;
        assert_eq!(left, [part, everyones], "everyone's stays");
        assert_eq!((drain("ann"), drain("bob")), (part, 0));
        drop(finish(limiter.reset_shared()));
        assert_eq!(left_of(&finish(peek(&limiter, "cleo")))[1], 1_000 / share);
    }
}

#[test]
fn a_share_of_0_is_an_error_that_names_the_setting() {
    let none = OnStoreFailure::share_of(0);
    assert!(matches!(none, OnStoreFailure::Local { share_of: 0, .. }));
    let limiter = |policy| Limiter::builder().store(Down).policy(policy);
    let layer = |policy| RateLimitLayer::builder().store(Down).policy(policy);
    let own = || policy().on_store_failure(none);
    for mistake in [
        limiter(policy()).on_store_failure(none).build().err(),
        limiter(own()).build().err(),
        layer(policy()).on_store_failure(none).build().err(),
        layer(own().cost_by(|_| 1)).build().err(),
    ] {
        let mistake = mistake.expect("an error");
        assert!(mistake.to_string().contains("`share_of`"), "{mistake}");
        assert_eq!((mistake.policy(), mistake.code()), (Some("one"), "zero"));
    }
    let panic = std::panic::catch_unwind(|| Limiter::new(Down, own()));
    let text = panic.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("share_of"), "{text}");
    // A setting that is replaced is never used.
    let mended = policy().on_store_failure(OnStoreFailure::local());
    assert!(limiter(mended).on_store_failure(none).build().is_ok());
}
