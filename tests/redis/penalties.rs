//! Penalties in Redis: what is stored, for how long, and in how many calls.

use crate::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn connect(server: &RedisServer, ttl: Duration) -> (RedisStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let store = patient().clock(clock.clone()).denial_cache_ttl(ttl);
    (store.connect(&server.url()).expect("a store"), clock)
}

fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    denying_limiter(store.clone(), policies)
}

fn bans() -> Policy {
    let penalty = Penalty::after(3).within(10 * MINUTE).lasting(5 * MINUTE);
    Policy::new("bans", penalty.doubling_up_to(DAY).forgiven_after(7 * DAY))
}

fn striking() -> [Policy; 2] {
    let api = Policy::new("api", TokenBucket::per_day(1));
    [api, bans().strike_on_denial()]
}

async fn check(limiter: &Limiter) -> Decision {
    limiter.check("ann").await.expect("a decision")
}

fn is_banned(decision: &Decision) -> bool {
    decision.denied_by().any(|policy| policy.name() == "bans")
}

#[tokio::test]
async fn a_caller_without_strikes_has_no_key_and_others_one_that_expires() {
    let server = RedisServer::start();
    let (store, clock) = connect(&server, Duration::ZERO);
    let limiter = limiter(&store, [bans()]);
    for caller in 0..50_u64 {
        let decision = limiter.check(caller).await.expect("a decision");
        assert!(decision.is_allowed());
    }
    assert!(server.keys().is_empty());

    let _ = limiter.strike("ann", 1).await.expect("a strike");
    let [key] = &server.keys()[..] else {
        panic!("one key");
    };
    assert_eq!(limiter.storage_keys("ann"), *std::slice::from_ref(key));
    // The clock of the store does not run, so keys live a minute longer.
    let about = |expected: Duration| {
        let left = server.command(&["PTTL", key]);
        let left = ms(left.parse().expect("milliseconds"));
        let range = expected..=expected + 2 * MINUTE;
        assert!(range.contains(&left), "{left:?}");
    };
    about(10 * MINUTE);
    let _ = limiter.strike("ann", 2).await.expect("strikes");
    about(5 * MINUTE + 7 * DAY);
    let stored = server.command(&["GET", key]);
    assert_eq!(stored.trim().len(), 29, "{stored}");
    clock.advance(5 * MINUTE);
    assert!(check(&limiter).await.is_allowed());
    limiter.reset("ann").await.expect("a reset");
    assert!(server.keys().is_empty());
    server.assert_all_keys_expire();
}

/// The denial and its strike are one call. A banned request is one call, which writes nothing.
#[tokio::test]
async fn a_strike_is_in_the_call_of_its_denial() {
    let server = RedisServer::start();
    let (store, _) = connect(&server, Duration::ZERO);
    let limiter = limiter(&store, striking());
    assert!(check(&limiter).await.is_allowed());
    let writes = || server.ran("psetex");
    let calls = || server.ran("evalsha") + server.ran("eval");
    let before = (calls(), writes());
    for _ in 0..3 {
        let _ = check(&limiter).await;
    }
    assert_eq!((calls() - before.0, writes() - before.1), (3, 3));
    let before = (calls(), writes());
    for _ in 0..5 {
        assert!(is_banned(&check(&limiter).await));
    }
    assert_eq!((calls() - before.0, writes() - before.1), (5, 0));
}

/// Equal checks that share a call: each denial is a strike of its own.
#[tokio::test]
async fn checks_that_share_a_call_strike_one_by_one() {
    let server = RedisServer::start();
    let (store, _) = connect(&server, Duration::ZERO);
    for (name, room, calls) in [("few", 3, 40), ("none", 0, 40), ("all", 40, 40)] {
        let policies = [
            Policy::new(name, FixedWindow::per_day(room)),
            Policy::new("bans", Penalty::after(20)).strike_on_denial(),
        ];
        let limiter = limiter(&store, policies);
        let asked = (0..calls).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(name).await.expect("a decision") })
        });
        let mut left = Vec::new();
        let (mut allowed, mut banned) = (0, 0);
        for decision in asked.collect::<Vec<_>>() {
            let decision = decision.await.expect("an answer");
            allowed += u64::from(decision.is_allowed());
            banned += u64::from(is_banned(&decision));
            let bans = decision.policies().last().expect("the penalty");
            left.push(bans.remaining());
        }
        assert_eq!(allowed, room.min(calls), "{name}");
        let denied = calls - allowed;
        // The twentieth denial is the ban, and so are all behind it.
        assert_eq!(banned, (denied + 1).saturating_sub(20), "{name}");
        left.sort_unstable();
        left.dedup();
        let expected: Vec<u64> = (0..=20).collect();
        if denied >= 20 && allowed > 0 {
            assert_eq!(left, expected, "{name}");
        }
    }
}

/// Data of others under the key admits nobody, and is not overwritten.
#[tokio::test]
async fn unexpected_data_is_an_error_until_it_expires() {
    let server = RedisServer::start();
    let (store, _) = connect(&server, Duration::ZERO);
    let limiter = limiter(&store, striking());
    let keys = limiter.storage_keys("ann");
    let [digits, signs] = ["9".repeat(45), "-1".repeat(15)];
    for junk in ["", "7", "x", "1795318406000", &digits, &signs] {
        // A process of its own each time, as it keeps the ban that Redis did not confirm.
        let (store, _) = connect(&server, Duration::ZERO);
        let limiter = self::limiter(&store, striking());
        server.command(&["SET", &keys[1], junk]);
        let error = limiter.check("ann").await.expect_err("unexpected data");
        assert!(error.is_corrupt_state(), "{junk}: {error}");
        let error = limiter.ban("ann", MINUTE).await.expect_err("no ban");
        assert!(error.is_corrupt_state(), "{junk}: {error}");
        server.assert_all_keys_expire();
    }
    // A pause is stored as a ban is.
    for junk in ["", "7", "x", "1795318406000", &digits, &signs] {
        let (store, _) = connect(&server, Duration::ZERO);
        let paused = self::limiter(&store, [Policy::new("pauses", Pause)]);
        let key = &paused.storage_keys("ann")[0];
        server.command(&["SET", key, junk]);
        let error = paused.check("ann").await.expect_err("unexpected data");
        assert!(error.is_corrupt_state(), "{junk}: {error}");
        // It may have expired: a pause has no time of its own.
        server.command(&["SET", key, junk]);
        let error = paused.pause("ann", MINUTE).await.expect_err("no pause");
        assert!(error.is_corrupt_state(), "{junk}: {error}");
        server.assert_all_keys_expire();
    }
    // Digits of the right number are never more than a ban that ends.
    server.command(&["SET", &keys[1], &"9".repeat(44)]);
    assert!(!check(&limiter).await.is_allowed());
    limiter.reset("ann").await.expect("a reset");
    assert!(check(&limiter).await.is_allowed());
}

/// Four processes strike the same callers at once: by checks, which share calls, by hand, and by
/// bans. Redis says to one of them that it started the ban.
#[tokio::test(flavor = "multi_thread")]
async fn of_racing_strikes_one_is_counted_as_the_start_of_the_ban() {
    const CALLERS: u64 = 100;

    let server = RedisServer::start();
    let processes = [(); 4].map(|()| {
        let (store, _) = connect(&server, Duration::from_secs(1));
        let api = Policy::new("api", FixedWindow::per_day(0));
        let penalty = Penalty::after(7).lasting(DAY);
        let bans = Policy::new("bans", penalty).strike_on_denial();
        limiter(&store, [api, bans])
    });
    let mut calls = JoinSet::new();
    for caller in 0..CALLERS {
        for (number, limiter) in processes.iter().enumerate() {
            for call in 0..4 {
                let limiter = limiter.clone();
                calls.spawn(async move {
                    match (number, call) {
                        (0, 3) => limiter.ban(caller, DAY).await.expect("a ban"),
                        (_, 3) => drop(limiter.strike(caller, 3).await.expect("strikes")),
                        _ => drop(limiter.check(caller).await.expect("a decision")),
                    }
                });
            }
        }
    }
    calls.join_all().await;
    let bans = processes.each_ref().map(bans_started);
    assert_eq!(bans.iter().sum::<u64>(), CALLERS, "{bans:?}");
}

/// The key of a pause expires with it.
#[tokio::test]
async fn a_pause_holds_in_all_processes_until_its_end() {
    let server = RedisServer::start();
    let [first, second] = [(); 2].map(|()| {
        let store = patient().connect(&server.url()).expect("a store");
        let pace = Policy::new("pace", TokenBucket::per_day(100));
        limiter(&store, [pace, Policy::new("pauses", Pause)])
    });
    assert!(check(&second).await.is_allowed());
    let taken = server.keys().len();
    for pause in [MINUTE, DAY, MINUTE] {
        first.pause("ann", pause).await.expect("a pause");
    }
    let denied = check(&second).await;
    let names = denied.denied_by().map(|policy| policy.name());
    assert_eq!(names.collect::<Vec<_>>(), ["pauses"]);
    let left = denied.retry_after().expect("an end");
    // It ends at a whole millisecond.
    assert!(left <= DAY + ms(1) && left > DAY - MINUTE, "{left:?}");
    assert_eq!(server.keys().len(), taken + 1);
    let begun = first.metrics().bans().map(|(_, count)| count).sum::<u64>();
    assert_eq!(begun, 1);
    first.resume("ann").await.expect("an end");
    assert_eq!(server.keys().len(), taken);
    // Its process repeats the denial for at most a second.
    eventually_async("the end", || async { check(&second).await.is_allowed() }).await;
}

/// Redis stores no later end than 2286, so that is the end that is asked for. A ban that were never
/// confirmed would be sent for ever, and only this process would decide.
#[tokio::test]
async fn the_longest_ban_is_confirmed() {
    let server = RedisServer::start();
    let (store, _) = connect(&server, Duration::ZERO);
    let limiter = limiter(
        &store,
        [Policy::new("api", TokenBucket::per_day(1)), bans()],
    );
    let buckets = limiter.buckets("ann");
    buckets.ban(Duration::MAX).await.expect("a ban");
    let decision = limiter.peek("ann").await.expect("a decision");
    assert!(is_banned(&decision));
    assert_eq!(decision.policies().count(), 2, "the store has decided");
}
