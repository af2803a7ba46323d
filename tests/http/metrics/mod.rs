//! What layers and limiters count: each request once, on every path.

mod bans;
mod exposition;
mod layers;
mod limiters;
mod observing;
#[cfg(feature = "tracing")]
mod span;
mod waits;

use tower_throttle::metrics::Snapshot;

use crate::{prelude::*, support::counted};

/// Reads counts, as in `allowed 2, api: near 1`.
fn counts(text: &str) -> BTreeMap<String, u64> {
    let counts = text.split(", ").filter(|count| !count.is_empty());
    let counts = counts.map(|count| count.rsplit_once(' ').expect("a count"));
    counts
        .map(|(name, count)| (name.to_owned(), count.parse().expect("a number")))
        .collect()
}

/// Asserts that these are the only counts that are not 0, and that each request has one result.
#[track_caller]
fn assert_counted(seen: &Snapshot, expected: &str) {
    assert_eq!(counted(seen), counts(expected));
    let decided = seen.decisions.by_source().map(|(_, count)| count);
    let requests = &seen.requests;
    let of_decisions = requests.allowed + requests.denied + requests.banned + requests.impossible;
    let of_decisions = of_decisions + requests.store_failed + requests.exempt + requests.listed;
    assert_eq!(decided.sum::<u64>(), of_decisions);
}

fn is_pending<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context).is_pending()
}
