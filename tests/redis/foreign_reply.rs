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
