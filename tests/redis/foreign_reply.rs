//! A connection that delivered a foreign reply is replaced, and no other.

use std::collections::HashSet;

use crate::prelude::*;

const NOW_US: f64 = 1_795_242_000_000_000.0;

/// What the server recorded of its connections.
#[derive(Debug, Default)]
struct Seen {
    /// The connection on which it lied.
    lied_on: Option<usize>,
    /// The connections on which scripts ran since then.
    in_use: HashSet<usize>,
}

/// Returns the reply to a script call that begins with this nonce.
type Say = fn(f64) -> Vec<u8>;

/// A server that sends one foreign reply, and correct ones afterwards.
fn liar(lie: Say) -> (u16, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let its = Arc::clone(&seen);
    let port = fake::answer(move |connection, words| {
        if !fake::is_script(words) {
            return b"+OK\r\n".to_vec();
        }
        let mut seen = its.lock().expect("no panic");
        let shown = if seen.lied_on.is_none() {
            seen.lied_on = Some(connection);
            lie
        } else {
            seen.in_use.insert(connection);
            |nonce| fake::reply(&[nonce, NOW_US, 1.0, 0.0])
        };
        shown(fake::nonce(words))
    });
    (port, seen)
}

#[tokio::test]
async fn a_foreign_reply_replaces_its_connection_and_no_other() {
    let lies: [(&str, Say); 4] = [
        // A foreign reply to the whole call, or to one check only.
        ("a status", |_| b"+OK\r\n".to_vec()),
        ("another call's", |_| fake::reply(&[1.0, NOW_US, 1.0, 0.0])),
        ("a verdict unknown", |nonce| {
            fake::reply(&[nonce, NOW_US, 7.0, 0.0])
        }),
        ("too much", |nonce| {
            fake::reply(&[nonce, NOW_US, 1.0, 9_007_199_254_740_994.0])
        }),
    ];
    for (name, lie) in lies {
        let (port, seen) = liar(lie);
        let store = patient().connections(2);
        let store = store.connect(&format!("redis://127.0.0.1:{port}/"));
        let limiter = denying(store.expect("a store"), TokenBucket::per_hour(3));
        let error = limiter.check("ann").await.expect_err(name);
        assert!(error.is_foreign_reply(), "{name}: {error:?}");
        let failures = limiter.metrics().store.failures;
        assert_eq!((failures.foreign_reply, failures.total()), (1, 1), "{name}");
        // A third connection is made, and shares the calls with the one that stayed.
        eventually_async("another connection", || async {
            let _ = limiter.check("ann").await;
            seen.lock().expect("no panic").in_use.contains(&2)
        })
        .await;
        let lied_on = {
            let mut seen = seen.lock().expect("no panic");
            seen.in_use.clear();
            seen.lied_on.expect("it has lied")
        };
        for _ in 0..20 {
            let _ = limiter.check("ann").await.expect("a decision");
        }
        let in_use = &seen.lock().expect("no panic").in_use;
        assert_eq!(*in_use, HashSet::from([1 - lied_on, 2]), "{name}");
    }
}

/// The commands beside the script. A document that could not be read would else be an empty one.
#[tokio::test]
async fn a_foreign_reply_to_another_command_is_an_error() {
    const RIGHT: [(&str, &str); 4] = [
        ("SCAN", "*2\r\n$1\r\n0\r\n*0\r\n"),
        ("DEL", ":1\r\n"),
        ("TIME", "*2\r\n$10\r\n1795242000\r\n$1\r\n0\r\n"),
        ("GETRANGE", "$0\r\n\r\n"),
    ];
    for (command, lie) in RIGHT.into_iter().chain([
        ("SCAN", ":0\r\n"),
        ("SCAN", "*1\r\n$1\r\n0\r\n"),
        ("SCAN", "*2\r\n*0\r\n$1\r\n0\r\n"),
        ("DEL", "+OK\r\n"),
        ("DEL", "*0\r\n"),
        ("TIME", "+OK\r\n"),
        ("TIME", "*1\r\n$10\r\n1795242000\r\n"),
        ("TIME", "*2\r\n$4\r\nsoon\r\n$1\r\n0\r\n"),
        ("TIME", "*2\r\n$20\r\n18446744073709551615\r\n$1\r\n0\r\n"),
        ("GETRANGE", ":0\r\n"),
        ("GETRANGE", "*0\r\n"),
    ]) {
        let port = fake::answer(move |_, words| {
            let name = String::from_utf8_lossy(&words[0]).to_uppercase();
            let right = RIGHT.into_iter().find(|(command, _)| *command == name);
            match right {
                Some((_, _)) if name == command => lie,
                Some((_, right)) => right,
                None => "+OK\r\n",
            }
        });
        let store = patient().connect(&format!("redis://127.0.0.1:{port}/"));
        let store = store.expect("a store");
        let error = match command {
            "SCAN" => store.callers("hourly", 1_000).await.err(),
            "DEL" => {
                let limiter = denying(store, TokenBucket::per_hour(3));
                limiter.reset("ann").await.err()
            }
            _ => {
                let read = store.control().refresh().await;
                read.err().and_then(|error| error.store_error().cloned())
            }
        };
        let is_foreign = error.map(|error| error.is_foreign_reply());
        let expected = (!RIGHT.contains(&(command, lie))).then_some(true);
        assert_eq!(is_foreign, expected, "{command} {lie:?}");
    }
}
