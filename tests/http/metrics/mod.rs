//! What layers and limiters count: each request once, on every path.

mod bans;
mod exposition;
mod layers;
mod limiters;
mod near;
mod observing;
mod series;
#[cfg(feature = "tracing")]
mod span;
mod threads;
mod waits;

use std::{
    collections::BTreeMap,
    pin::Pin,
    task::{Context, Waker},
};

use tower_throttle::metrics::Snapshot;

/// Returns all counts that are not 0, by what they count.
fn counted(seen: &Snapshot) -> BTreeMap<String, u64> {
    let requests = seen.requests.by_result();
    let requests = requests.map(|(result, count)| (result.to_owned(), count));
    let decisions = seen.decisions.by_source();
    let decisions = decisions.map(|(source, count)| (format!("by {source}"), count));
    let checks = seen.policies().flat_map(|(policy, checks)| {
        let checks = checks.by_result();
        checks.map(move |(result, count)| (format!("{policy}: {result}"), count))
    });
    let all = requests.chain(decisions).chain(checks);
    all.filter(|(_, count)| *count > 0).collect()
}

/// Asserts that these are the only counts that are not 0, and that each request has one result.
#[track_caller]
fn assert_counted<const N: usize>(seen: &Snapshot, expected: [(&str, u64); N]) {
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counted(seen), BTreeMap::from(expected));
    let decided = seen.decisions.by_source().map(|(_, count)| count);
    let requests = &seen.requests;
    let of_decisions = requests.allowed + requests.denied + requests.banned + requests.impossible;
    let of_decisions = of_decisions + requests.store_failed + requests.exempt + requests.listed;
    assert_eq!(decided.sum::<u64>(), of_decisions);
}

/// Polls a future once.
fn is_pending<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context).is_pending()
}
