//! What the rows have in common: stores and limiters as an application has them, and the units
//! that the server has taken of each key.

use tower_throttle::RedisStoreBuilder;

use crate::prelude::*;

/// The bound of the matrix for each call to the store.
pub(crate) const CALL: Duration = Duration::from_millis(50);

/// The timeout of rows in which nothing makes the store slow. In long runs it is the matrix's;
/// otherwise the store decides each check, however busy the machine is.
pub(crate) fn patience() -> Duration {
    or_long(DEADLINE, CALL)
}

pub(crate) fn store(deadline: Duration, url: &str) -> RedisStore {
    let store = builder().timeout(deadline).connect(url);
    store.expect("a store")
}

/// Redis must make each denial, because a cached denial says nothing about its present state.
pub(crate) fn builder() -> RedisStoreBuilder {
    hasty().denial_cache_ttl(Duration::ZERO)
}

/// A limiter without fallback: the store made every admission.
pub(crate) fn limiter(store: RedisStore, quota: impl Into<Policy>) -> Limiter {
    failing(OnStoreFailure::Deny, store, quota)
}

pub(crate) fn failing(
    choice: OnStoreFailure,
    store: RedisStore,
    quota: impl Into<Policy>,
) -> Limiter {
    let builder = Limiter::builder().store(store).on_store_failure(choice);
    builder.policy(quota).build().expect("a limiter")
}

/// Waits until the store itself decides.
pub(crate) async fn ready(limiter: &Limiter) {
    wait::until_async("a store that decides", async || {
        let peek = limiter.peek("unused").await;
        peek.is_ok_and(|decision| decision.source() == Source::Store)
    })
    .await;
}

/// Takes units of each key so that what remains tells the keys apart, as
/// [`own_replies`](crate::checker::own_replies) requires.
pub(crate) async fn spread_out(limiter: &Limiter, keys: u32, band: u64) {
    for key in 1..u64::from(keys) {
        let taken = limiter.check_n(key, key * band).await;
        assert!(taken.expect("a decision").is_allowed());
    }
}

/// Returns the units taken of each key in the ledger, from a quota without refill.
pub(crate) async fn charges(
    limiter: &Limiter,
    ledger: &[Entry],
    capacity: impl Fn(u32) -> u64,
) -> HashMap<u32, u64> {
    let mut charges = HashMap::new();
    for entry in ledger {
        if charges.contains_key(&entry.key) {
            continue;
        }
        let mut left = None;
        wait::until_async("what is left", async || {
            let peek = limiter.peek(u64::from(entry.key)).await.ok();
            let remaining = peek.and_then(|peek| peek.policies().map(|p| p.remaining()).min());
            left = remaining.or(left);
            remaining.is_some()
        })
        .await;
        charges.insert(
            entry.key,
            capacity(entry.key) - left.expect("it was waited for"),
        );
    }
    charges
}

pub(crate) fn count(ledger: &[Entry], is: impl Fn(Outcome) -> bool) -> u64 {
    ledger.iter().filter(|entry| is(entry.outcome)).count() as u64
}
