//! Keys in Redis expire: never before they mean the same as none, and soon afterwards. Windows
//! are short, because the server's own clock decides.

use tokio::time::sleep;

use crate::prelude::*;

/// Returns the longest time for which a policy of the decision still has an effect.
fn matters_for(decision: &Decision) -> Duration {
    let policies = decision.policies();
    let longest = policies.map(|policy| policy.reset_after()).max();
    longest.expect("a policy")
}

/// Returns the time until an existing key expires.
fn ttl(server: &RedisServer, key: &str) -> Duration {
    let left = server.command(&["PTTL", key]);
    ms(left.parse().expect("a key that expires"))
}

fn server_time_us(server: &RedisServer) -> i64 {
    let time = server.command(&["TIME"]);
    let (seconds, us) = time.split_once('\n').expect("two numbers");
    let number = |text: &str| text.parse::<i64>().expect("a number");
    1_000_000 * number(seconds) + number(us)
}

fn eventually_empty(server: &RedisServer) {
    eventually("an empty database", || {
        std::thread::sleep(ms(2));
        server.command(&["DBSIZE"]) == "0"
    });
}

/// Every algorithm whose units are used up, with state that is kept for 50 to 600 ms.
fn short_lived() -> Vec<Policy> {
    vec![
        Policy::new("bucket", TokenBucket::new(5, ms(50))),
        Policy::new("one by one", TokenBucket::new(1, ms(50)).burst(1)),
        Policy::new("meter", LeakyBucket::new(5, ms(100)).capacity(10)),
        Policy::new("queue", LeakyBucket::new(5, ms(100)).queue(4)),
        Policy::new("at once", TokenBucket::new(5, ms(200)).refill_at_once()),
        Policy::new(
            "in part at once",
            TokenBucket::new(2, ms(100)).refill_at_once().burst(6),
        ),
        Policy::new("window", FixedWindow::new(5, ms(200))),
        Policy::new("aligned", FixedWindow::new(5, ms(200)).aligned()),
        Policy::new("spread", FixedWindow::new(5, ms(200)).aligned().spread()),
        Policy::new("sliding", SlidingWindow::new(5, ms(100))),
        Policy::new("log", SlidingLog::new(5, ms(200))),
    ]
}

/// Makes every operation that writes. Returns the last decision.
async fn use_up(limiter: &Limiter, server: &RedisServer) -> Decision {
    let credit = async |units| {
        let refund = limiter.credit("ann", units).await;
        refund.map(|refund| refund.decision().clone())
    };
    let decide = async |round: u64| {
        let decision = match round % 6 {
            0 => limiter.check("ann").await,
            1 => limiter.debit("ann", 4).await,
            2 => credit(1).await,
            3 => limiter.take_up_to("ann", 3).await,
            4 => limiter.check_n("ann", 2).await,
            _ => credit(2).await,
        };
        server.assert_all_keys_expire();
        decision.expect("a decision")
    };
    for round in 0..23 {
        let _ = decide(round).await;
    }
    // Something is left that has an effect.
    limiter.debit("ann", 1).await.expect("a decision")
}

#[tokio::test]
async fn each_key_expires_when_it_means_the_same_as_none() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    for policy in short_lived() {
        let shown = format!("{policy:?}");
        let limiter = Limiter::new(store.clone(), policy);
        for _ in 0..2 {
            let decision = use_up(&limiter, &server).await;
            let needed = matters_for(&decision);
            assert!(needed > Duration::ZERO, "{shown}");
            let ends_us = decided_at_us(&decision) as i64 + needed.as_micros() as i64;
            let expiry_us = expiry_us(&server, &limiter.storage_keys("ann")[0]);
            if let Some(expiry_us) = expiry_us {
                let [earliest_us, latest_us] = expiry_us.map(|at_us| at_us - ends_us);
                let is_so = earliest_us <= 5_000 && latest_us >= 0;
                assert!(is_so, "{shown}: {earliest_us} to {latest_us} µs later");
            }
            eventually_empty(&server);
            assert!(server_time_us(&server) >= ends_us, "{shown}");
        }
    }
}

/// When an existing key expires, by the clock that expires it: never before its units are back,
/// and not much later. Once by this server's clock, and once by a clock that was handed in,
/// whose keys stay a minute longer.
#[tokio::test]
async fn a_bucket_in_use_expires_later_with_each_unit() {
    let server = RedisServer::start();
    let unit = Duration::from_secs(100);
    let clock = Arc::new(crate::support::WallClock);
    let by_clock = patient().clock(clock);
    let by_clock = by_clock.connect(&server.url()).expect("a store");
    for (name, store, spare) in [
        ("own", store_at(&server.url()), Duration::ZERO),
        ("given", by_clock, Duration::from_secs(60)),
    ] {
        let policy = Policy::new(name, TokenBucket::new(1, unit).burst(10));
        let limiter = Limiter::new(store, policy);
        let key = limiter.storage_keys("ann").remove(0);
        for number in 1..=5 {
            let decision = limiter.check("ann").await.expect("a decision");
            let left = ttl(&server, &key);
            // Without the part of a millisecond, and the time that has passed since.
            let all = number * unit + spare;
            let range = all - unit / 10..=all + ms(2);
            assert!(range.contains(&left), "{name}: {left:?}");
            assert!(decision.is_allowed());
        }
    }
}

/// Returns the earliest and the latest time at which an existing key may expire. They differ if the
/// server stalls.
fn expiry_us(server: &RedisServer, key: &str) -> Option<[i64; 2]> {
    let script = "local before, left = redis.call('TIME'), redis.call('PTTL', KEYS[1]) \
                  local after = redis.call('TIME') \
                  return { before[1], before[2], after[1], after[2], left }";
    let reply = server.command(&["EVAL", script, "1", key]);
    let numbers: Vec<i64> = reply.lines().flat_map(str::parse).collect();
    let &[before_s, before_us, after_s, after_us, left_ms] = &numbers[..] else {
        panic!("{reply}");
    };
    let ends = [(before_s, before_us), (after_s, after_us)];
    let ends = ends.map(|(seconds, us)| 1_000_000 * seconds + us + 1_000 * left_ms);
    (left_ms >= 0).then_some(ends)
}

/// State that is kept for longer than it has an effect: for callers that do not start full, and
/// for buckets without refill.
#[tokio::test]
async fn long_windows_expire_too() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let even = TokenBucket::new(5, ms(100)).initial(2);
    let years = Duration::from_secs(100 * 365 * 86_400);
    let minute = Duration::from_secs(60);
    let quotas = [
        (even, minute),
        (even.refill_at_once(), minute),
        (TokenBucket::without_refill(5), years),
        (TokenBucket::without_refill(5).initial(0), 2 * years),
    ];
    for (quota, memory) in quotas {
        let limiter = Limiter::new(store.clone(), Policy::new("api", quota));
        for _ in 0..4 {
            // Denied requests count, too: they are the first that Redis sees of the caller.
            let _ = limiter.check("ann").await.expect("a decision");
            let ttl = ttl(&server, &limiter.storage_keys("ann")[0]);
            let most = memory + Duration::from_secs(1);
            let range = memory - ms(20_000)..=most;
            assert!(range.contains(&ttl), "{quota:?}: {ttl:?}");
        }
        limiter.reset("ann").await.expect("nothing there");
        assert_eq!(server.command(&["DBSIZE"]), "0");
    }
}

#[tokio::test]
async fn permits_expire_when_released_or_abandoned_but_not_while_held() {
    let server = RedisServer::start();
    let store_of = |lifetime| {
        let quota = Concurrency::new(2).lifetime(lifetime);
        Limiter::new(store_at(&server.url()), Policy::new("api", quota))
    };
    let hold = async |limiter: &Limiter| {
        let permit = limiter.acquire("ann", Duration::ZERO).await;
        let permit = permit.expect("a decision");
        assert!(permit.is_allowed());
        permit
    };
    // Each renewal puts the expiry off.
    let limiter = store_of(ms(3_000));
    let held = hold(&limiter).await;
    let key = limiter.storage_keys("ann").remove(0);
    for _ in 0..2 {
        let mut last = ttl(&server, &key);
        eventually_async("a renewal", || {
            let before = std::mem::replace(&mut last, ttl(&server, &key));
            let is_renewed = last > before;
            async move {
                sleep(ms(20)).await;
                is_renewed
            }
        })
        .await;
        server.assert_all_keys_expire();
    }
    drop(held);
    eventually_async("an empty database", async || server.keys().is_empty()).await;

    // Released, and not expired.
    let limiter = store_of(ms(3_600_000));
    drop((hold(&limiter).await, hold(&limiter).await));
    eventually_async("an empty database", async || server.keys().is_empty()).await;
}

/// Two versions of a quota.
const VERSIONS: &str = "\
1 per 100 ms, burst 10 | 1 per 100 ms, burst 5
1 per 50 ms, burst 10 | 1 per 200 ms, burst 10
leaky bucket of 1 per 100 ms, capacity 10 | leaky bucket of 1 per 100 ms, capacity 5
leaky bucket of 1 per 100 ms, queue 9 | leaky bucket of 1 per 100 ms, queue 4
5 per 200 ms, burst 10, refill at once | 2 per 300 ms, burst 6, refill at once
5 per 200 ms, burst 10, refill at once | 5 per 200 ms, refill at once
10 per 400 ms, refill at once | 3 per 100 ms, burst 10, refill at once
fixed window of 10 per 300 ms | fixed window of 5 per 300 ms
fixed window of 10 per 200 ms | fixed window of 5 per 300 ms
fixed window of 10 per 300 ms | fixed window of 10 per 200 ms
fixed window of 10 per 300 ms, aligned | fixed window of 5 per 300 ms, aligned
fixed window of 10 per 200 ms, aligned | fixed window of 5 per 300 ms, aligned
fixed window of 10 per 300 ms, aligned | fixed window of 10 per 200 ms, aligned
sliding window of 10 per 300 ms | sliding window of 5 per 300 ms
sliding window of 10 per 200 ms | sliding window of 5 per 300 ms
sliding window of 10 per 300 ms | sliding window of 10 per 200 ms
sliding log of 10 per 300 ms | sliding log of 5 per 300 ms
sliding log of 10 per 200 ms | sliding log of 5 per 300 ms
sliding log of 10 per 300 ms | sliding log of 10 per 200 ms";

/// Two versions of a service with different numbers run at once, and a caller meets one and
/// then the other. It gets no more than the larger of the two grants, and the newer version
/// soon admits it.
async fn two_versions(server: &RedisServer, random: &mut Random, texts: [&str; 2]) {
    server.command(&["FLUSHALL"]);
    let clock = Arc::new(ManualClock::new());
    let store = patient().denial_cache_ttl(Duration::ZERO);
    let store = store.clock(clock.clone()).connect(&server.url());
    let store = store.expect("a store");
    let [old, new] = texts.map(|text| text.parse::<Quota>().expect(text));
    let version = |quota| Limiter::new(store.clone(), Policy::new("api", quota));
    let limiters = [version(old), version(new)];
    let (started_us, mut admitted, mut last) = (clock.now_us(), 0, None);
    for limiter in limiters.iter().cycle().take(200) {
        let decision = limiter.check("ann").await.expect("a decision");
        admitted += u64::from(decision.is_allowed());
        last = Some(decision);
        clock.advance(Duration::from_micros(random.below(8_000)));
    }
    server.assert_all_keys_expire();
    let took = Duration::from_micros(clock.now_us() - started_us);
    // How many periods may have begun, beside the first.
    let begun = |quota: Quota| (took.as_nanos() / quota.period().as_nanos()) as u64 + 1;
    let is_other_period = old.period() != new.period();
    let periods = match texts[0].ends_with("aligned") && is_other_period {
        // Each end of either's begins a new one for both.
        true => begun(old) + begun(new),
        false => begun(old).max(begun(new)),
    };
    let mut capacity = old.capacity().max(new.capacity());
    let is_sliding = texts[0].starts_with("sliding window");
    if is_sliding && is_other_period {
        // Each reads the other's windows as its own.
        capacity *= 2;
    }
    let most = capacity + periods * old.limit().max(new.limit());
    let is_within = admitted <= most;
    assert!(is_within, "{admitted} > {most} in {took:?}: {texts:?}");
    let last = last.expect("a decision");
    if !last.is_allowed() {
        let wait = last.retry_after().expect("a time");
        // If tokens come at once, those that were taken count up to twice its capacity.
        let times = if is_sliding || texts[1].ends_with("at once") {
            2
        } else {
            1
        };
        let full = new.period() * new.capacity().div_ceil(new.limit()) as u32 * times;
        assert!(wait <= full, "{wait:?}: {texts:?}");
        clock.advance(wait);
        let decision = limiters[1].check("ann").await.expect("a decision");
        assert!(decision.is_allowed(), "after {wait:?}: {texts:?}");
    }
}

#[tokio::test]
async fn two_versions_of_a_policy_admit_no_more_than_the_larger_numbers() {
    let (server, mut random) = (RedisServer::start(), Random::new());
    for line in VERSIONS.lines() {
        let (one, other) = line.split_once(" | ").expect("two versions");
        two_versions(&server, &mut random, [one, other]).await;
        two_versions(&server, &mut random, [other, one]).await;
    }
}

/// What was used before the change is kept for as long as before. Then the longer window starts.
#[tokio::test]
async fn a_longer_window_grants_its_limit_once_beside_what_was_used_before() {
    let server = RedisServer::start();
    let store = store_at(&server.url());
    let (short, long) = (ms(200), Duration::from_secs(86_400));
    let windows = [short, long];
    for policies in [
        windows.map(|window| Policy::new("api", SlidingLog::new(10, window))),
        windows.map(|window| Policy::new("api", SlidingWindow::new(10, window))),
    ] {
        let [old, new] = policies.map(|policy| Limiter::new(store.clone(), policy));
        let used = old.take_up_to("ann", 10).await.expect("a decision");
        assert_eq!(used.charged(), 10);
        eventually_async("room", async || {
            let decision = new.peek("ann").await.expect("a decision");
            decision.is_allowed()
        })
        .await;
        let granted = new.take_up_to("ann", 100).await.expect("a decision");
        assert_eq!(granted.charged(), 10);
        assert!(!new.check("ann").await.expect("a decision").is_allowed());
        let key = new.storage_keys("ann").remove(0);
        assert!(ttl(&server, &key) >= Duration::from_secs(1), "{key}");
        new.reset("ann").await.expect("a reset");
    }
}
