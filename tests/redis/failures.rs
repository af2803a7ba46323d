//! What Redis can do to a limiter, and how the limiter handles it.

use tokio::time::Instant;
use tower::service_fn;

use crate::{
    prelude::*,
    support::refusals::{self, Refusal},
};

fn limiter(server: &RedisServer) -> Limiter {
    // Redis must make each decision.
    let store = patient().denial_cache_ttl(Duration::ZERO);
    let bucket = Policy::new("bucket", TokenBucket::per_hour(3));
    let window = Policy::new("window", FixedWindow::per_hour(5));
    denying_limiter(
        store.connect(&server.url()).expect("a store"),
        [bucket, window],
    )
}

/// Returns the URL of a user that may run only these commands, on the store's keys only.
fn user_with(server: &RedisServer, commands: &[&str]) -> String {
    let user = "ACL SETUSER app on >pw ~tt?{* +@connection".split(' ');
    let user: Vec<_> = user.chain(commands.iter().copied()).collect();
    server.command(&user);
    format!("redis://app:pw@127.0.0.1:{}/", server.port())
}

#[tokio::test]
async fn foreign_numbers_admit_no_more_than_the_quota() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let keys = limiter.storage_keys("ann");
    let seven = |number: u64| number.to_le_bytes()[..7].to_vec();
    let most = (1 << 53) - 1;
    let buckets = [[0, 1], [most, 1], [0, most], [most, most]].into_iter();
    let buckets = buckets.flat_map(|[full_us, unit_ns]| {
        let bucket = [b"B", &*seven(full_us), &[231, 3], &seven(unit_ns)].concat();
        let noted = [0, most].map(|at_us| [&*bucket, &seven(at_us)].concat());
        // If less were no debt, it would be one, and a debt is paid in full.
        let paid = noted.clone().map(|noted| [&*noted, &seven(most)].concat());
        [bucket].into_iter().chain(noted).chain(paid)
    });
    let all = "99999999999999999999999999999 99999999999995 00000000000000";
    let windows = all.split(' ').map(|digits| digits.as_bytes().to_vec());
    let buckets = buckets.map(|bytes| (0, 3, bytes));
    for (place, limit, bytes) in buckets.chain(windows.map(|bytes| (1, 5, bytes))) {
        server.command(&[b"SET", keys[place].as_bytes(), &bytes]);
        let admitted = count_admitted(&limiter, "ann", 10).await;
        assert!(admitted <= limit, "{bytes:?}");
        let decision = limiter.check("ann").await.expect("a decision");
        let wait = decision.retry_after().expect("a wait");
        assert!(wait <= Duration::from_secs(3_600), "{bytes:?}: {wait:?}");
        server.assert_all_keys_expire();
        server.command(&["FLUSHALL"]);
    }
}

/// Whatever Redis refuses inside the script, the error contains its word.
#[tokio::test]
async fn an_error_of_redis_is_quoted() {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let url = user_with(&server, &["+@all"]);
    let unused = Port::claim();
    let get = Refusal::new("NOPERM", "ACL|SETUSER|app|-get", "ACL|SETUSER|app|+get");
    for refusal in refusals::all(&unused).into_iter().chain([get]) {
        let word = refusal.word;
        // A store of its own each time, so that no breaker is open.
        let store = store_at(&url);
        let limiter = denying(store, TokenBucket::per_hour(3));
        assert_eq!(count_admitted(&limiter, word, 1).await, 1, "{word}");
        let is_refused = refusal.begin(&server);
        let checked = limiter.check(word).await;
        refusal.end(&server);
        server.command(&["FLUSHALL"]);
        if !is_refused {
            assert!(checked.expect(word).is_allowed());
            continue;
        }
        let error = checked.expect_err(word);
        assert!(error.is_refused(), "{word}: {error:?}");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let shown = format!("Redis refused a command of the script with {word}");
        assert_eq!(cause, Some(shown));
    }
}

#[tokio::test]
async fn a_wrong_password_is_an_error_and_not_an_admission() {
    let server = RedisServer::with(&["--requirepass", "secret"]);
    let store = store_at(&server.url());
    let limiter = denying(store, TokenBucket::per_hour(3));
    let error = limiter.check("ann").await.expect_err("no password");
    assert!(error.is_refused(), "{error:?}");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    let cause = cause.unwrap_or_default();
    let is_named = cause.contains("NOAUTH") || cause.contains("password");
    assert!(is_named, "{cause}");
}

fn url_of(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

/// In paused time, which passes as soon as nothing else can happen.
#[tokio::test(start_paused = true)]
async fn the_deadline_holds_when_the_server_accepts_and_never_answers() {
    let url = url_of(fake::silent());
    let deadline = Duration::from_millis(100);
    let store = hasty().timeout(deadline).connect(&url);
    let limiter = denying(store.expect("a store"), TokenBucket::per_hour(3));
    for _ in 0..5 {
        let asked = Instant::now();
        let error = limiter.check("ann").await.expect_err("no answer");
        // The server has not replied yet, so nothing was sent.
        assert!(error.is_unavailable(), "{error:?}");
        let took = asked.elapsed();
        assert!(took <= deadline + Duration::from_millis(1), "{took:?}");
    }
}

/// A process that starts beside a frozen server would otherwise wait in each check, until the
/// attempt to connect fails after a second.
#[tokio::test(start_paused = true)]
async fn checks_wait_a_quarter_of_a_second_for_the_first_connection() {
    let timeout = Duration::from_millis(10);
    let store = hasty().timeout(timeout);
    let store = store.connect(&url_of(fake::silent())).expect("a store");
    let limiter = denying(store, TokenBucket::per_hour(3));
    let waits = crate::support::count_waits(&limiter, timeout, Duration::from_millis(900)).await;
    // Of 10 ms each, and not 90 over the whole time.
    assert!((20..=25).contains(&waits), "{waits}");
}

#[tokio::test]
async fn a_flood_does_not_open_a_layer_that_allows_when_redis_fails() {
    let server = RedisServer::start();
    let store = patient().max_in_flight(16).connect(&server.url());
    let layer = RateLimitLayer::builder()
        .store(store.expect("a store"))
        .policy(Policy::new("api", TokenBucket::per_day(1)).shared())
        .on_store_failure(OnStoreFailure::Allow)
        .build()
        .expect("a layer");
    let service = layer.layer(service_fn(hello));
    let requests = (0..2_000).map(|_| service.clone().oneshot(plain()));
    let mut statuses = HashMap::<u16, u32>::new();
    for response in JoinSet::from_iter(requests).join_all().await {
        let status = response.expect("infallible").status().as_u16();
        *statuses.entry(status).or_default() += 1;
    }
    let count = |status| statuses.get(&status).copied().unwrap_or_default();
    assert_eq!(count(200), 1, "{statuses:?}");
    assert_eq!(count(429) + count(503), 1_999, "{statuses:?}");
}

#[tokio::test]
async fn checks_whose_callers_left_still_count_while_they_wait() {
    // It answers the handshake, and no check.
    static HEARD: AtomicU64 = AtomicU64::new(0);
    let port = fake::answer(|_, words| {
        let is_script = fake::is_script(words);
        HEARD.fetch_add(u64::from(is_script), Ordering::SeqCst);
        if is_script { "" } else { "+OK\r\n" }
    });
    let store = patient().max_in_flight(64).connect(&url_of(port));
    let limiter = denying(store.expect("a store"), TokenBucket::per_hour(3));
    // These checks stay.
    let stay = (0..8).map(|_| {
        let limiter = limiter.clone();
        async move { limiter.check("ann").await }
    });
    let _stay = JoinSet::from_iter(stay);
    eventually_async("a call that hangs", || async {
        tokio::task::yield_now().await;
        HEARD.load(Ordering::SeqCst) >= 1
    })
    .await;
    let mut overloaded = 0;
    for _ in 0..10_000 {
        let mut check = Box::pin(limiter.check("bob"));
        let polled = std::future::poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx))).await;
        if let Poll::Ready(Err(error)) = polled {
            overloaded += usize::from(error.is_overloaded());
        }
    }
    assert!(overloaded >= 10_000 - 64, "{overloaded}");
}

#[tokio::test]
async fn a_check_denied_in_a_call_does_not_deny_the_others() {
    let server = RedisServer::start();
    let url = user_with(&server, &["+evalsha", "+eval", "+get", "+time", "+psetex"]);
    let store = patient().connect(&url);
    let limiter = denying(store.expect("a store"), TokenBucket::per_day(5));
    // Unexpected data to which this user may not give an expiry.
    server.command(&["SET", &limiter.storage_keys("ann")[0], "junk"]);

    let checks = (0..400).map(|number| {
        let caller = if number % 4 == 0 { "ann" } else { "bob" };
        let limiter = limiter.clone();
        async move { (caller, limiter.check(caller).await) }
    });
    let (mut admitted, mut corrupt) = (0, 0);
    for (caller, answer) in JoinSet::from_iter(checks).join_all().await {
        match answer {
            Ok(decision) => admitted += u64::from(decision.is_allowed()),
            Err(error) => {
                assert!(error.is_corrupt_state() && caller == "ann", "{error:?}");
                corrupt += 1;
            }
        }
    }
    assert_eq!((admitted, corrupt), (5, 100));
}

/// Text, other types, and bytes that start with the store's letter but are not its state, some of the
/// right length.
#[tokio::test]
async fn corrupt_state_is_an_error_admits_no_request_and_expires() {
    let server = RedisServer::start();
    let now_us = 1_767_225_600_000_000_f64;
    let minute = Duration::from_secs(60);
    let holder = |place: usize, number: f64| {
        let mut numbers = [1.0, 1e300, 1.0, 1.0, 1.0, 1.0, 1.0];
        numbers[place] = number;
        blob(b"H", &numbers)
    };
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let mut bucket: Vec<_> = words(&["junk", "-5", "1e18", "1795318406000000000", "a list"]);
    bucket.extend([
        b"B".to_vec(),
        [b"B", &[255; 16][..]].concat(),
        [b"B", &[0; 16][..]].concat(),
        [b"B", &[255; 30][..]].concat(),
        b"B1234567123456712".to_vec(),
    ]);
    let log = vec![
        [b"L\0\0\0\0\0", &[255; 7][..], &[0; 5]].concat(),
        blob(b"L", &[now_us; 3]),
        b"L".to_vec(),
        b"Lx".to_vec(),
    ];
    let numbers = [
        (0, 0.0),
        (0, f64::NAN),
        (1, f64::NAN),
        (1, -1.0),
        (2, 0.0),
        (3, -1.0),
    ];
    let others = [(4, 0.5), (4, -1e300), (5, -1.0), (6, f64::INFINITY)];
    let permits = numbers.into_iter().chain(others);
    let permits = permits.map(|(place, number)| holder(place, number));
    let cut = blob(b"H", &[1.0, 1e300, 1.0, 1.0, 1.0, 1.0]);
    let texts = [&b"H123"[..], b"P123456781234567812345678"].map(<[u8]>::to_vec);
    let permits = permits.chain([cut]).chain(texts).collect();
    for (policy, shapes) in [
        (Policy::new("api", TokenBucket::new(2, minute)), bucket),
        (
            Policy::new("api", FixedWindow::new(2, minute)),
            words(&["7", "a list"]),
        ),
        (Policy::new("api", SlidingLog::new(2, minute)), log),
        (
            Policy::new("api", Concurrency::new(2).lifetime(minute)),
            permits,
        ),
    ] {
        for bytes in shapes {
            let clock = Arc::new(ManualClock::at_us(now_us as u64));
            let store = patient().clock(clock).connect(&server.url());
            // Before the other one, which must not be charged.
            let other = Policy::new("other", FixedWindow::per_hour(5));
            let limiter = denying_limiter(store.expect("a store"), [policy.clone(), other]);
            let key = limiter.storage_keys("ann").remove(0);
            match &*bytes {
                b"a list" => drop(server.command(&["LPUSH", &key, "x"])),
                bytes => drop(server.command(&[&b"SET"[..], key.as_bytes(), bytes])),
            }
            let left_ms = async || -> i64 {
                for _ in 0..5 {
                    let permit = limiter.acquire("ann", Duration::ZERO).await;
                    let error = permit.expect_err("not ours");
                    assert!(error.is_corrupt_state(), "{bytes:?}: {error:?}");
                }
                assert_eq!(server.keys(), [&*key], "{bytes:?}");
                server.command(&["PTTL", &key]).parse().expect("a time")
            };
            let expires_ms = left_ms().await;
            let is_within = (1..=60_000).contains(&expires_ms);
            assert!(is_within, "{bytes:?}: {expires_ms}");
            // A shorter time until expiry is not changed.
            server.command(&["PEXPIRE", &key, "20000"]);
            let expires_ms = left_ms().await;
            let is_within = (1..=20_000).contains(&expires_ms);
            assert!(is_within, "{bytes:?}: {expires_ms}");
            server.command(&["FLUSHALL"]);
            assert!(limiter.acquire("ann", Duration::ZERO).await.is_ok());
            server.command(&["FLUSHALL"]);
        }
    }
}

fn blob(letter: &[u8], numbers: &[f64]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    letter.iter().copied().chain(numbers).collect()
}

/// Bytes that resemble state make only that caller's check an error. A script that raised an
/// error would fail all checks of the call, and count against the server.
#[tokio::test]
async fn crafted_bytes_under_a_key_affect_that_caller_only() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::at_us(1_767_225_600_000_000));
    let store = patient().denial_cache_ttl(Duration::ZERO).clock(clock);
    let store = store.connect(&server.url()).expect("a store");
    let minute = Duration::from_secs(60);
    let policies = [
        Policy::new("bucket", TokenBucket::new(3, minute)),
        Policy::new("meter", LeakyBucket::new(3, minute)),
        Policy::new("queue", LeakyBucket::new(3, minute).queue(2)),
        Policy::new("interval", TokenBucket::new(3, minute).refill_at_once()),
        Policy::new("by hand", TokenBucket::without_refill(3)),
        Policy::new("window", FixedWindow::new(3, minute)),
        Policy::new("month", FixedWindow::per_calendar_month(3).spread()),
        Policy::new("sliding", SlidingWindow::new(3, minute)),
        Policy::new("log", SlidingLog::new(3, minute)),
        Policy::new("permits", Concurrency::new(3).lifetime(minute)),
    ];
    let mut random = Random::new();
    for policy in policies {
        let limiter = denying(store.clone(), policy.clone());
        let key = limiter.storage_keys("ann").remove(0);
        let (mut corrupt, mut taken) = (0, 0);
        for _ in 0..150 {
            let bytes = crafted(&mut random);
            server.command(&[&b"SET"[..], key.as_bytes(), &bytes]);
            let checked = limiter.check("ann").await;
            let is_held = checked.is_err_and(|error| error.is_unsupported());
            let peek = limiter.peek("ann").await.map(drop);
            let permit = limiter.acquire("ann", Duration::ZERO).await.map(drop);
            let mut answers = vec![peek, permit];
            if !is_held {
                answers.push(limiter.credit("ann", 1).await.map(drop));
                answers.push(limiter.debit("ann", 2).await.map(drop));
                answers.push(limiter.take_up_to("ann", 2).await.map(drop));
            }
            for answer in answers {
                match answer {
                    Ok(()) => taken += 1,
                    Err(error) if error.is_corrupt_state() => corrupt += 1,
                    Err(error) => panic!("{policy:?}: {bytes:?}: {error:?}"),
                }
            }
            let others = limiter.peek("bob").await;
            assert!(others.is_ok(), "{policy:?}: {bytes:?}: {others:?}");
        }
        println!("{}: {corrupt} corrupt, {taken} taken for ours", key);
    }

    // Permits that are taken in addition, and are released.
    let limiter = denying(store, Concurrency::new(100).lifetime(minute));
    let key = limiter.storage_keys("ann").remove(0);
    let now_ms = 1_767_225_600_000.0;
    let (later, long_ago) = (now_ms + 30_000.0, now_ms - 90_000_000.0);
    for bytes in [
        blob(b"P", &[2.0, 5.0, later, 1.0, 6.0, long_ago, 1.0]),
        blob(b"H", &[5.0, long_ago, 1.0, 1.0, -9.0, 1.0, 1.0]),
        blob(b"H", &[5.0, later, 1.0, 1.0, f64::NAN, 1.0, 1.0]),
    ] {
        for _ in 0..60 {
            server.command(&[&b"SET"[..], key.as_bytes(), &bytes]);
            let permit = limiter.acquire("ann", Duration::ZERO).await;
            let error = permit.as_ref().err();
            assert!(error.is_none_or(StoreError::is_corrupt_state), "{error:?}");
            drop(permit);
            tokio::task::yield_now().await;
        }
        let others = limiter.peek("bob").await;
        assert!(others.is_ok(), "{bytes:?}: {others:?}");
    }
}

/// Returns numbers, lists of doubles, or noise.
fn crafted(random: &mut Random) -> Vec<u8> {
    let now_ms = 1_767_225_600_000.0;
    let doubles = "0 -0 1 2 3 -1 0.5 nan inf -inf 1e308 -1e308 1e300 1e18 9007199254740992 \
                   9007199254740994 1767225600000 1767225660000 1767225600000000 5e-324";
    let doubles: Vec<f64> = doubles.split(' ').flat_map(str::parse).collect();
    let words = ",-1,0,nan,inf,-inf,1e308,0x10, 12,12 ,1:2,1.5,99999999999999999999999999,\
                 9007199254740993,-9223372036854775808,1767225600000000000,\
                 17672256000000000000000000000000000000";
    let words: Vec<&str> = words.split(',').collect();
    let mut below = |end: usize| random.below(end as u64) as usize;
    match below(4) {
        0 => words[below(words.len())].as_bytes().to_vec(),
        1 => (0..below(45)).map(|_| b'0' + below(10) as u8).collect(),
        2 => (0..below(130)).map(|_| below(256) as u8).collect(),
        _ => {
            let mut bytes = vec![b"HLBx"[below(4)]];
            // Mostly numbers that could be state.
            let mild = [0.0, 1.0, 2.0, 3.0, now_ms, now_ms + 60_000.0];
            for _ in 0..[7 * below(5), below(29)][below(2)] {
                let double = match below(12) {
                    0 => doubles[below(doubles.len())],
                    1..6 => now_ms + 30_000.0,
                    _ => mild[below(mild.len())],
                };
                bytes.extend(double.to_le_bytes());
            }
            if below(8) == 0 {
                bytes.truncate(below(bytes.len() + 1));
            }
            bytes
        }
    }
}

/// A server that is far away. The text of the script and its name arrive together, so the first check
/// takes one round trip.
#[tokio::test]
async fn the_first_check_takes_one_round_trip() {
    let seen = Arc::<Mutex<Vec<&str>>>::default();
    let its = Arc::clone(&seen);
    let port = fake::answer(move |_, words| {
        let mut seen = its.lock().expect("no panic");
        if fake::is_load(words) {
            seen.push("text");
            // The reply is still on its way when the name arrives.
            return Vec::new();
        }
        if !fake::is_script(words) {
            return b"+OK\r\n".to_vec();
        }
        seen.push("name");
        let nonce = fake::nonce(words);
        let loaded = fake::reply(&[0.0, 1.0]);
        let decided = fake::reply(&[nonce, 1_795_242_000_000_000.0, 1.0, 0.0]);
        match seen.first() {
            Some(&"text") => [loaded, decided].concat(),
            _ => b"-NOSCRIPT no such script\r\n".to_vec(),
        }
    });
    let store = store_at(&url_of(port));
    let limiter = denying(store, TokenBucket::per_hour(3));
    assert!(check(&limiter, "ann").await.is_allowed());
    assert_eq!(*seen.lock().expect("no panic"), ["text", "name"]);
}
