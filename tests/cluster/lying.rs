//! Servers that lie about slots: an error each time, never a panic, a loop or
//! an admission.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tower_throttle::{Limiter, RedisStore, TokenBucket};

use crate::common::eventually_async;

/// Answers CLUSTER and EVALSHA so. `HERE` stands for its port.
fn lying_server(slots: &str, decision: &str) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let here = |text: &str| text.replace("HERE", &port.to_string());
    let answers = Arc::new((here(slots), here(decision)));
    let checks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&checks);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (answers, counted) = (Arc::clone(&answers), Arc::clone(&counted));
            thread::spawn(move || talk(stream, &answers, &counted));
        }
    });
    (format!("redis-cluster://127.0.0.1:{port}/"), checks)
}

fn talk(mut stream: TcpStream, (slots, decision): &(String, String), checks: &AtomicU64) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    while let Some(name) = read_command(&mut reader) {
        let answer = match &*name {
            "CLUSTER" => slots,
            "EVALSHA" | "EVAL" => {
                checks.fetch_add(1, Ordering::Relaxed);
                decision
            }
            _ => "+OK\r\n",
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The name of the next command.
fn read_command(reader: &mut impl BufRead) -> Option<String> {
    let mut number = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let words = number()?;
    let mut name = None;
    for _ in 0..words {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut word = vec![0; line.trim_end().get(1..)?.parse::<usize>().ok()? + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        name.get_or_insert(String::from_utf8_lossy(&word).to_uppercase());
    }
    name
}

fn limiter(url: &str) -> Limiter {
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(2))
        .connect(url);
    Limiter::new(
        store.expect("a store"),
        crate::denying(TokenBucket::per_hour(3)),
    )
}

const ALL_SLOTS: &str = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:HERE\r\n";

#[tokio::test]
async fn a_reply_that_is_not_exactly_a_slot_map_is_an_error() {
    let lies = [
        "$-1\r\n",
        "+OK\r\n",
        ":1\r\n",
        "*0\r\n",
        "*-1\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "*1\r\n*0\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$9\r\n127.0.0.1\r\n:HERE\r\n",
        "*1\r\n*3\r\n:-1\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:HERE\r\n",
        "*1\r\n*3\r\n:9\r\n:3\r\n*2\r\n$9\r\n127.0.0.1\r\n:HERE\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:0\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:99999\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n:5\r\n:HERE\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$3\r\na b\r\n:HERE\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*1\r\n$1\r\n?\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\n?\r\n:HERE\r\n",
    ];
    for lie in lies {
        let (url, checks) = lying_server(lie, "*3\r\n:1\r\n:1\r\n:1\r\n");
        let limiter = limiter(&url);
        limiter.check("ann").await.expect_err(lie);
        limiter.check("ann").await.expect_err(lie);
        assert_eq!(checks.load(Ordering::Relaxed), 0, "{lie:?}");
    }
}

#[tokio::test]
async fn where_no_host_is_named_it_is_the_one_that_was_asked() {
    for slots in [
        ALL_SLOTS.replace("$9\r\n127.0.0.1", "$0\r\n"),
        ALL_SLOTS.replace("$9\r\n127.0.0.1", "$-1"),
    ] {
        let (url, checks) = lying_server(&slots, "-NOPERM so far\r\n");
        let error = limiter(&url).check("ann").await.expect_err("no rights");
        assert!(error.is_refused(), "{error:?}");
        assert_eq!(checks.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn redirections_end_and_those_that_make_no_sense_are_not_followed() {
    let limiter_of = |decision: &str| {
        let (url, checks) = lying_server(ALL_SLOTS, decision);
        (limiter(&url), checks)
    };
    let store_of = limiter_of("+OK\r\n").0;
    let slot = fred::util::redis_keyslot(store_of.redis_keys("ann")[0].as_bytes());

    for (word, host) in [("MOVED", "127.0.0.1"), ("MOVED", ""), ("ASK", "127.0.0.1")] {
        let (limiter, checks) = limiter_of(&format!("-{word} {slot} {host}:HERE\r\n"));
        let error = limiter.check("ann").await.expect_err("round and round");
        assert!(error.is_unavailable(), "{error:?}");
        assert_eq!(checks.load(Ordering::Relaxed), 6, "{word}");
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
        let (limiter, checks) = limiter_of(&format!("-{nonsense}\r\n"));
        let error = limiter.check("ann").await.expect_err("nonsense");
        assert!(error.is_refused(), "{nonsense}: {error:?}");
        assert_eq!(checks.load(Ordering::Relaxed), 1, "{nonsense}");
    }
    let (limiter, checks) = limiter_of("-TRYAGAIN for ever\r\n");
    limiter.check("ann").await.expect_err("for ever");
    assert!(checks.load(Ordering::Relaxed) <= 4);
}

/// Sends each to another port, where nobody listens or somebody does.
#[tokio::test]
async fn a_redirection_to_nobody_is_an_error_within_the_deadline() {
    let nobody = crate::common::free_port();
    let slot_of = limiter("redis-cluster://127.0.0.1:1/").redis_keys("ann");
    let slot = fred::util::redis_keyslot(slot_of[0].as_bytes());
    for word in ["MOVED", "ASK"] {
        let answer = format!("-{word} {slot} 127.0.0.1:{nobody}\r\n");
        let (url, checks) = lying_server(ALL_SLOTS, &answer);
        let limiter = limiter(&url);
        let error = limiter.check("ann").await.expect_err("nobody is there");
        assert!(error.is_unavailable(), "{error:?}");
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        // What the map says is asked for again, and believed again.
        eventually_async("another look at the map", || async {
            let _ = limiter.check("ann").await;
            checks.load(Ordering::Relaxed) > 1
        })
        .await;
    }
}
