//! A thousand replacements while requests are served.

use std::{collections::VecDeque, thread};

use tower::service_fn;
use tower_throttle_config::{Limits, Readers};

use super::{limits_with, replace};
use crate::support::prelude::*;
use crate::support::web::{Answer, Slow, get, read};

const VERSIONS: u64 = 1_000;
/// What the policy `cap` grants, in all versions.
const CAP: u64 = 2_000;

/// A version in which everything is another one but the policy `cap`. The key, the number and the
/// name of the policy `turn` belong together.
fn version(number: u64, store: &str) -> String {
    let key = ["x-even", "x-odd"][number as usize % 2];
    let name = ["even", "odd"][number as usize % 2];
    let limit = 1_000_000_000 + number;
    format!(
        r#"
        version = 1
        store = {{ {store} }}
        policy = [
            {{ name = "turn-{name}", quota = "fixed window of {limit} per day", key = "header:{key}" }},
            {{ name = "cap", quota = "fixed window of {CAP} per day", shared = true }},
        ]
        layer = {{ default = {{ partition_key_secret = "a secret of the test" }} }}
        "#
    )
}

/// Begins a request. It ends when the result is called.
fn begin(layer: &RateLimitLayer) -> impl FnOnce() -> Answer + use<> {
    let mut service = layer.layer(service_fn(hello));
    let response = service.call(get([("x-even", "2"), ("x-odd", "1")]));
    move || read(at_once(response).expect("infallible"))
}

/// What an answer says of its version: the name, the limit, and the key.
fn seen(answer: &Answer) -> (String, u64, String) {
    let field = answer.field("ratelimit-policy").expect("a field");
    let turn = field.split(',').find(|policy| policy.contains("turn-"));
    let turn: Vec<_> = turn.expect("the policy").trim().split(';').collect();
    let [name, limit, _, key] = turn[..] else {
        panic!("{field}");
    };
    // It names the policies with the least room.
    let level = answer.field("ratelimit").expect("a field");
    let is_even = name.contains("even");
    let other = ["turn-even", "turn-odd"][usize::from(is_even)];
    assert!(!level.contains(other), "{field} {level}");
    let limit = limit.trim_start_matches("q=").parse().expect("a number");
    (name.trim_matches('"').to_owned(), limit, key.to_owned())
}

/// Checks that all parts of an answer are of one version. Returns 1 if the request was admitted.
fn check(answer: &Answer, keys: &HashMap<String, String>) -> u64 {
    let (name, limit, key) = seen(answer);
    let expected = ["turn-even", "turn-odd"][limit as usize % 2];
    assert_eq!((&*name, &key), (expected, &keys[expected]));
    match answer.status.as_u16() {
        200 => 1,
        429 => 0,
        status => panic!("{status}"),
    }
}

/// Replaces the limits while threads send requests. Returns how many were sent, and how many were
/// admitted.
fn storm(limits: &Limits, store: &str) -> (u64, u64) {
    let layer = limits.layer("default").expect("a layer");
    let keys: HashMap<String, String> = (0..2)
        .map(|number| {
            replace(limits, &version(number, store));
            let (name, _, key) = seen(&begin(&layer)());
            (name, key)
        })
        .collect();
    assert_ne!(keys["turn-even"], keys["turn-odd"]);
    let (sent, admitted) = (AtomicU64::new(2), AtomicU64::new(2));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                // Requests that began under former versions.
                let mut in_flight = VecDeque::new();
                loop {
                    if !is_over.load(Ordering::Relaxed) {
                        in_flight.push_back(begin(&layer));
                        sent.fetch_add(1, Ordering::Relaxed);
                    } else if in_flight.is_empty() {
                        break;
                    }
                    if is_over.load(Ordering::Relaxed) || in_flight.len() > 16 {
                        let end = in_flight.pop_front().expect("a request");
                        admitted.fetch_add(check(&end(), &keys), Ordering::Relaxed);
                    }
                }
            });
        }
        let mut total = 0;
        for number in 0..VERSIONS {
            replace(limits, &version(number, store));
            let now = layer.metrics().requests.total();
            assert!(now >= total, "{now} after {total}");
            total = now;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    (sent.into_inner(), admitted.into_inner())
}

/// Compares the numbers of a layer with what was sent.
fn assert_counted(store: &str, readers: Readers) {
    let limits = limits_with(&version(0, store), readers);
    let (sent, admitted) = storm(&limits, store);
    assert_eq!(admitted, CAP.min(sent));
    let layer = limits.layer("default").expect("a layer");
    let numbers = layer.metrics();
    assert_eq!(numbers.requests.total(), sent);
    assert_eq!(numbers.requests.allowed, admitted);
    assert_eq!(numbers.requests.denied, sent - admitted);
    let cap = numbers.policy("cap").expect("the policy");
    assert_eq!(
        (cap.allowed + cap.near, cap.denied),
        (admitted, sent - admitted)
    );
    // The last version is odd, and the policy of even ones has its counts.
    let odd = numbers.policy("turn-odd").expect("the policy").allowed;
    replace(&limits, &version(0, store));
    let numbers = layer.metrics();
    let even = numbers.policy("turn-even").expect("the policy").allowed;
    assert_eq!(odd + even, sent);
    assert_eq!(limits.status().version, 1 + 2 + VERSIONS + 1);
}

#[test]
fn each_request_sees_one_version_and_every_request_is_counted() {
    assert_counted("memory = true", Readers::new());
}

#[test]
fn each_request_sees_one_version_while_its_store_answers_later() {
    let slow = Slow::new(MemoryStore::new());
    slow.gate.add_permits(1 << 40);
    assert_counted("reader = \"slow\"", Readers::new().store("slow", slow));
}
