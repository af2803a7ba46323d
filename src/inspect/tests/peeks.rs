//! A look-up sees what a peek sees.

use std::time::Duration;

use super::{HOUR, World, buckets, look_up};
use crate::{
    Concurrency, Decision, FixedWindow, Key, LeakyBucket, Limiter, Penalty, Policy, PolicyDecision,
    SlidingLog, SlidingWindow, TokenBucket, inspect::CallerState, key, util::split_mix::SplitMix64,
};

const MINUTE: Duration = Duration::from_secs(60);

/// One policy of each algorithm, and such as hold, owe, share, or deny nothing.
fn policies() -> Vec<Policy> {
    vec![
        Policy::new("token", TokenBucket::per_minute(6).burst(9)),
        Policy::new("debt", TokenBucket::per_hour(6)).max_debt(20),
        Policy::new("leaky", LeakyBucket::new(6, MINUTE).capacity(4)),
        Policy::new("queue", LeakyBucket::new(6, MINUTE).queue(5)),
        Policy::new("fixed", FixedWindow::per_hour(7)).cost(2),
        Policy::new("sliding", SlidingWindow::new(7, HOUR)),
        Policy::new("log", SlidingLog::new(7, HOUR)),
        Policy::new("permits", Concurrency::new(3)),
        Policy::new(
            "bans",
            Penalty::after(3).lasting(MINUTE).doubling_up_to(HOUR),
        ),
        Policy::new("held", TokenBucket::per_hour(9)).hold_for(MINUTE),
        Policy::new("shared", FixedWindow::per_hour(30)).shared(),
        Policy::new("shadow", SlidingWindow::new(4, HOUR)).shadow(),
        Policy::new("held-shadow", FixedWindow::per_hour(4))
            .hold_for(MINUTE)
            .shadow(),
    ]
}

/// All parts of a decision about a policy.
fn all_of(decision: &PolicyDecision) -> (String, String, [u64; 5], [Duration; 2]) {
    (
        format!("{decision:?}"),
        decision.quota().to_string(),
        [
            decision.held_by_request(),
            decision.held_by_all_requests(),
            decision.charged(),
            u64::from(decision.is_denied()),
            u64::from(decision.is_impossible()),
        ],
        [decision.delay(), decision.reset_after()],
    )
}

/// Compares a look-up with a peek, policy by policy.
#[track_caller]
fn compare(states: &[CallerState], peek: &Decision) {
    let known: Vec<_> = peek.policies().chain(peek.shadow_policies()).collect();
    assert_eq!(states.len(), known.len());
    for state in states {
        let expected = known.iter().find(|known| known.name() == state.policy);
        let expected = expected.expect("the peek has it, too");
        let bucket = state.bucket.as_ref().expect("a bucket");
        assert_eq!(all_of(&bucket.decision), all_of(expected));
        assert_eq!(state.quota, Some(expected.quota()));
        assert_eq!(bucket.source, peek.source());
        let is_ban = expected.name() == "bans" && expected.is_denied();
        assert_eq!(state.banned_by_policy_until().is_some(), is_ban);
        assert_eq!(state.banned_until, None);
    }
}

/// Does something to the bucket of one policy. Returns what is held until it is dropped.
async fn do_something(limiter: &Limiter, key: &'static str, random: &mut SplitMix64) -> Kept {
    let units = random.below(5);
    let mut kept = Kept::default();
    match random.below(7) {
        0 => drop(limiter.debit(key, units).await),
        1 => drop(limiter.credit(key, units).await),
        2 => drop(limiter.strike(key, units).await),
        3 => drop(limiter.ban(key, MINUTE * random.below(3) as u32).await),
        4 => kept.reserved = limiter.reserve(key, units).await.ok(),
        5 => kept.permit = limiter.acquire(key, Duration::ZERO).await.ok(),
        _ => drop(limiter.check_n(key, units).await),
    }
    kept
}

#[derive(Default)]
struct Kept {
    reserved: Option<crate::Reserved>,
    permit: Option<crate::Permit>,
}

#[tokio::test(start_paused = true)]
async fn each_policy_is_seen_as_a_peek_sees_it() {
    for world in [World::in_memory(), World::in_redis()] {
        let mut random = SplitMix64(18);
        let limiter = world.limiter(policies());
        let layer = world.layer(policies().into_iter().map(|policy| {
            // A shared one has no key of its own.
            match format!("{policy:?}").contains("shared: true") {
                true => policy,
                false => policy.key(key::header("x-api-key")),
            }
        }));
        let alone: Vec<Limiter> = policies()
            .into_iter()
            .map(|policy| world.limiter([policy]))
            .collect();
        let mut kept = Vec::new();
        let mut seen = [0; 3];
        for _ in 0..800 {
            let key = ["a", "b"][random.below(2) as usize];
            let policy = random.below(alone.len() as u64) as usize;
            kept.push(do_something(&alone[policy], key, &mut random).await);
            // In paused time, this lets tasks end: a request does not wait for its shadow policies.
            tokio::time::sleep(Duration::from_millis(1)).await;
            if kept.len() > 5 {
                kept.remove(random.below(5) as usize);
            }
            if random.below(4) == 0 {
                world.advance(MINUTE / 4).await;
            }
            let states = look_up(limiter.inspect(), &[key], None).await;
            compare(&states, &limiter.peek(key).await.expect("a decision"));
            let typed = format!("header:x-api-key={key}");
            let states = look_up(layer.inspect(), &[&typed], None).await;
            let peek = buckets(&layer, &[("x-api-key", key)]).peek().await;
            compare(&states, &peek.expect("a decision"));
            let states = look_up(layer.inspect(), &[key], None).await;
            for state in &states {
                let bucket = state.bucket.as_ref().expect("a bucket");
                seen[0] += usize::from(bucket.decision.is_denied());
                seen[1] += usize::from(bucket.decision.held_by_all_requests() > 0);
                seen[2] += usize::from(state.banned_by_policy_until().is_some());
            }
        }
        assert!(seen.iter().all(|times| *times > 20), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_written_or_counted() {
    for world in [World::in_memory(), World::in_redis()] {
        let (limiter, layer) = (world.limiter(policies()), world.layer([super::plan()]));
        limiter
            .check_n("a", 2)
            .await
            .expect_err("permits cannot be used up");
        let counted = |limiter: &Limiter| {
            let seen = limiter.metrics();
            (
                seen.requests,
                seen.decisions,
                format!("{:?}", seen.policy("token")),
            )
        };
        let before = (counted(&limiter), world.store.metrics().memory_buckets);
        for number in 0..200_u32 {
            let name = format!("caller-{number}");
            look_up(limiter.inspect(), &[&name], None).await;
            look_up(layer.inspect(), &[&name], None).await;
            look_up(
                layer.inspect(),
                &["header:x-api-key=k1", "method:PUT"],
                None,
            )
            .await;
        }
        let after = (counted(&limiter), world.store.metrics().memory_buckets);
        assert_eq!(after, before);
        assert_eq!(layer.metrics().requests.total(), 0);
        assert!(layer.recent_denials().is_empty());
        let state = super::only(look_up(layer.inspect(), &["k1"], Some("plan")).await);
        let bucket = state.bucket.expect("a bucket");
        assert_eq!(
            (bucket.decision.remaining(), bucket.decision.charged()),
            (10, 0)
        );
        assert_eq!(
            state.fingerprint,
            Some(world.store.fingerprint(&Key::from("k1")))
        );
    }
}

/// All policies are asked in one call, whatever their number.
#[tokio::test(start_paused = true)]
async fn a_look_up_is_one_round_trip() {
    let world = World::in_redis();
    let limiter = world.limiter(policies());
    let before = world.redis.served();
    let states = look_up(limiter.inspect(), &["a"], None).await;
    let after = world.redis.served();
    assert_eq!(after.calls - before.calls, 1);
    assert_eq!(after.checks - before.checks, states.len() as u64);
}
