//! Servers with wrong slot maps: each is an error, never a panic, a loop or an admission.

use std::{collections::HashSet, error::Error};

use crate::prelude::*;

/// Counts the commands that the server got.
#[derive(Debug, Default)]
struct Asked {
    checks: AtomicU64,
    slots: AtomicU64,
}

/// Answers CLUSTER with [`ALL_SLOTS`], and scripts as `decide` does. `HERE` stands for its port.
fn server(decide: impl Fn(&[Vec<u8>]) -> String + Send + Sync + 'static) -> (String, Arc<Asked>) {
    slow_server(Duration::ZERO, decide)
}

/// The same, and the first answer on each connection takes this long.
fn slow_server(
    greeting: Duration,
    decide: impl Fn(&[Vec<u8>]) -> String + Send + Sync + 'static,
) -> (String, Arc<Asked>) {
    let (asked, greeted) = (Arc::new(Asked::default()), Mutex::new(HashSet::new()));
    let counted = Arc::clone(&asked);
    let here = Arc::new(AtomicU64::new(0));
    let known = Arc::clone(&here);
    let port = fake::answer(move |connection, words| {
        if greeted.lock().expect("no panic").insert(connection) {
            std::thread::sleep(greeting);
        }
        let shown = if fake::is_script(words) {
            counted.checks.fetch_add(1, Ordering::SeqCst);
            decide(words)
        } else if words[0].eq_ignore_ascii_case(b"CLUSTER") {
            counted.slots.fetch_add(1, Ordering::SeqCst);
            ALL_SLOTS.to_owned()
        } else {
            "+OK\r\n".to_owned()
        };
        shown.replace("HERE", &known.load(Ordering::SeqCst).to_string())
    });
    here.store(port.into(), Ordering::SeqCst);
    (format!("redis-cluster://127.0.0.1:{port}/"), asked)
}

/// Answers scripts with this text.
fn lying_server(decision: &str) -> (String, Arc<Asked>) {
    let decision = decision.to_owned();
    server(move |_| decision.clone())
}

fn limiter(url: &str) -> Limiter {
    limiter_within(DEADLINE, url)
}

fn limiter_within(timeout: Duration, url: &str) -> Limiter {
    let store = hasty().timeout(timeout).connect(url);
    denying_limiter(store.expect("a store"), [TokenBucket::per_hour(3).into()])
}

/// A limiter of two policies in one slot, and more.
fn several(url: &str, more: impl IntoIterator<Item = Policy>) -> Limiter {
    let bucket = Policy::new("bucket", TokenBucket::per_hour(3));
    let window = Policy::new("window", FixedWindow::per_hour(3));
    let policies = [bucket, window].into_iter().chain(more);
    denying_limiter(store_at(url), policies)
}

fn slot_of_ann() -> u16 {
    let keys = limiter("redis-cluster://127.0.0.1:1/").storage_keys("ann");
    fred::util::redis_keyslot(keys[0].as_bytes())
}

const ALL_SLOTS: &str = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:HERE\r\n";

#[tokio::test]
async fn a_server_that_is_no_cluster_says_how_to_connect() {
    let server = RedisServer::start();
    let limiter = limiter(&server.url().replace("redis://", "redis-cluster://"));
    let error = limiter.check("ann").await.expect_err("no cluster");
    assert!(error.is_refused(), "{error:?}");
    let cause = error.source().expect("a cause").to_string();
    assert!(cause.ends_with("connect with redis://"), "{cause}");
}

/// Over TLS or from far away, connecting takes several round trips.
#[tokio::test]
async fn a_cluster_that_is_slow_to_connect_to_is_found() {
    let refuse = |_: &[Vec<u8>]| "-NOPERM so far\r\n".to_owned();
    let (url, _) = slow_server(Duration::from_millis(500), refuse);
    let store = hasty().connect(&url).expect("a store");
    let limiter = denying_limiter(store, [TokenBucket::per_hour(3).into()]);
    eventually_async("its slot map", async || {
        let error = limiter.check("ann").await.expect_err("no rights");
        error.is_refused()
    })
    .await;
}

/// A process that starts beside a frozen cluster would otherwise wait in each check, until each
/// of its nodes has failed to reply for a second. In paused time, which passes as soon as nothing
/// else can happen.
#[tokio::test(start_paused = true)]
async fn checks_wait_a_quarter_of_a_second_for_the_first_slot_map() {
    let [one, two, three] = [(); 3].map(|()| fake::silent());
    let url =
        format!("redis-cluster://127.0.0.1:{one}/?node=127.0.0.1:{two}&node=127.0.0.1:{three}");
    let timeout = Duration::from_millis(10);
    let limiter = limiter_within(timeout, &url);
    let waits = crate::support::count_waits(&limiter, timeout, Duration::from_millis(1_500)).await;
    // Of 10 ms each, and not 150 over the whole time.
    assert!((20..=25).contains(&waits), "{waits}");
}

#[tokio::test]
async fn redirections_are_bounded_and_invalid_ones_are_not_followed() {
    let limiter_of = |decision: &str| {
        let (url, asked) = lying_server(decision);
        (limiter(&url), asked)
    };
    let slot = slot_of_ann();
    for (word, host) in [("MOVED", "127.0.0.1"), ("MOVED", ""), ("ASK", "127.0.0.1")] {
        let (limiter, asked) = limiter_of(&format!("-{word} {slot} {host}:HERE\r\n"));
        let error = limiter.check("ann").await.expect_err("round and round");
        assert!(error.is_unavailable(), "{error:?}");
        assert_eq!(asked.checks.load(Ordering::SeqCst), 6, "{word}");
    }
    for nonsense in [
        format!("MOVED {slot}"),
        format!("MOVED {slot} nowhere"),
        format!("MOVED {slot} 127.0.0.1:"),
        format!("MOVED {slot} 127.0.0.1:-1"),
        format!("MOVED {slot} ?:HERE"),
        format!("ASK {slot} 127.0.0.1:70000"),
        format!("ASK {} 127.0.0.1:HERE", (slot + 1) % 16_384),
        "MOVED".to_owned(),
        "MOVED -1 127.0.0.1:HERE".to_owned(),
    ] {
        let (limiter, asked) = limiter_of(&format!("-{nonsense}\r\n"));
        let error = limiter.check("ann").await.expect_err("nonsense");
        assert!(error.is_refused(), "{nonsense}: {error:?}");
        let shown = format!("{error}: {}", error.source().expect("a cause"));
        assert!(shown.contains(&nonsense.replace("HERE", "")), "{shown}");
        assert!(shown.starts_with("127.0.0.1:"), "{shown}");
        assert!(!shown.contains("redis-cluster://"), "it is one: {shown}");
        assert_eq!(asked.checks.load(Ordering::SeqCst), 1, "{nonsense}");
    }
    let (limiter, asked) = limiter_of("-TRYAGAIN for ever\r\n");
    limiter.check("ann").await.expect_err("for ever");
    assert!(asked.checks.load(Ordering::SeqCst) <= 4);
}

/// The pauses before the fourth, fifth and sixth attempt take 25 ms in all.
#[tokio::test]
async fn nodes_that_disagree_get_no_check_beyond_its_deadline() {
    let slot = slot_of_ann();
    let decision = format!("-MOVED {slot} 127.0.0.1:HERE\r\n");
    let (url, asked) = lying_server(&decision);
    let limiter = limiter_within(Duration::from_millis(16), &url);
    let sent = || asked.checks.load(Ordering::SeqCst);
    let mut checks = 0;
    while checks < 20 || sent() < 20 {
        limiter.check("ann").await.expect_err("round and round");
        checks += 1;
        assert!(sent() <= 5 * checks, "{} of {checks} checks", sent());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The server replies that the slot is elsewhere, without an address.
#[tokio::test]
async fn a_redirection_without_an_address_refreshes_the_slot_map() {
    let slot = slot_of_ann();
    let (url, asked) = lying_server(&format!("-MOVED {slot} ?:HERE\r\n"));
    let limiter = limiter(&url);
    limiter.check("ann").await.expect_err("no server to call");
    // Without the redirection, the map would be refreshed after half a minute.
    eventually_async("a refresh of the slot map", || async {
        asked.slots.load(Ordering::SeqCst) > 1
    })
    .await;
}

/// While their slot moves, keys are checked one by one.
#[tokio::test]
async fn units_are_refunded_to_every_key_though_one_refund_fails() {
    let alone = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&alone);
    let (url, _) = server(move |words| {
        if words[2] != b"1" {
            return "-TRYAGAIN on its way\r\n".to_owned();
        }
        let key = String::from_utf8_lossy(&words[3]).into_owned();
        heard.lock().expect("no panic").push(key);
        "-OOM no memory\r\n".to_owned()
    });
    let limiter = several(&url, []);
    let error = limiter.credit("ann", 1).await.expect_err("no memory");
    assert!(error.is_refused(), "{error:?}");
    let alone = alone.lock().expect("no panic");
    assert_eq!(*alone, limiter.storage_keys("ann"));
}

/// While their slot moves, the keys of shadow policies may be the cause of a reply.
#[tokio::test]
async fn shadow_policies_are_left_out_before_keys_are_split() {
    let slot = slot_of_ann();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&heard);
    let (url, _) = server(move |words| {
        let keys = String::from_utf8_lossy(&words[2]).into_owned();
        let mut heard = its.lock().expect("no panic");
        heard.push(keys);
        match heard.len() {
            1 => "-TRYAGAIN on its way\r\n".to_owned(),
            // Without the shadow policies, until it is known where the slot is.
            2 => format!("-MOVED {slot} 127.0.0.1:HERE\r\n"),
            _ => "-OOM no memory\r\n".to_owned(),
        }
    });
    let log = Policy::new("log", FixedWindow::per_hour(3)).shadow();
    let limiter = several(&url, [log]);
    limiter.check("ann").await.expect_err("no memory");
    let heard = heard.lock().expect("no panic");
    assert_eq!(*heard, ["3", "2", "3"]);
}

/// Before Redis 7, a node that lacks some keys of a call names the other node. Another check of the
/// same batch, or a shadow policy, may be the cause: then the key is still here.
#[tokio::test]
async fn a_check_is_repeated_alone_before_it_goes_to_the_node_that_imports_its_slot() {
    let unused = crate::support::port::Port::claim();
    let ask = format!("-ASK {} 127.0.0.1:{unused}\r\n", slot_of_ann());
    let (url, asked) = server(move |words| match &words[2][..] {
        b"1" => "-OOM no memory\r\n".to_owned(),
        _ => ask.clone(),
    });
    let bucket = Policy::new("bucket", TokenBucket::per_hour(3));
    let log = Policy::new("log", FixedWindow::per_hour(3)).shadow();
    let limiter = denying_limiter(store_at(&url), [bucket, log]);
    let error = limiter.check("ann").await.expect_err("no memory");
    assert!(error.is_refused(), "{error:?}");
    assert_eq!(asked.checks.load(Ordering::SeqCst), 2);
}

/// Redirects each check to another port, where a server listens or none does.
#[tokio::test]
async fn a_redirection_to_an_absent_node_is_an_error_within_the_deadline() {
    let unused = crate::support::port::Port::claim();
    let slot = slot_of_ann();
    // After ASK, the check is first repeated alone.
    for (word, sent) in [("MOVED", 1), ("ASK", 2)] {
        let answer = format!("-{word} {slot} 127.0.0.1:{unused}\r\n");
        let (url, asked) = lying_server(&answer);
        let limiter = limiter(&url);
        let error = limiter.check("ann").await.expect_err("no server listens");
        assert!(error.is_unavailable(), "{error:?}");
        assert_eq!(asked.checks.load(Ordering::SeqCst), sent);
        // The slot map is read again, and used again.
        eventually_async("a refresh of the slot map", || async {
            let _ = limiter.check("ann").await;
            asked.checks.load(Ordering::SeqCst) > sent
        })
        .await;
    }
}
