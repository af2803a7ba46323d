//! The limits of the admin page itself: on wrong tokens and on calls.
//!
//! They are kept in this process, in bounded memory. Those with access have a memory of their own,
//! which strangers cannot fill.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::{
    bearer::Bearer,
    problem::{Code, Problem},
};
use crate::{
    Clock, Decision, Key, Limiter, MemoryStore, Penalty, Policy, RequestHead, StoreError,
    TokenBucket,
    key::{self, AddressReader, KeyExtractor},
    telemetry,
};

/// A page and its assets, and what the page asks for when it is loaded, a few times in a row.
const BURST: u64 = 60;
const CALLS_PER_SECOND: u64 = 10;
const WRONG_TOKENS: u64 = 5;
const MINUTE: Duration = Duration::from_secs(60);
/// How many peers are remembered, and how many of those with access. More share cells, and may be
/// denied with each other.
const STRANGERS: usize = 10_000;
const KNOWN: usize = 1_000;

/// The visitors whose calls are counted together.
pub(super) enum Budget {
    /// A session, a user, or those with the secret at one peer.
    Known(Key),
    /// All others at one peer.
    Stranger(Key),
}

/// Counts wrong tokens and calls.
pub(super) struct Attempts {
    wrong_tokens: Limiter,
    known: Limiter,
    strangers: Limiter,
}

impl Attempts {
    pub(super) fn new(clock: Option<&Arc<dyn Clock>>) -> Self {
        let store = |capacity| {
            let builder = MemoryStore::builder().capacity(capacity);
            match clock {
                Some(clock) => builder.clock(Arc::new(Arc::clone(clock))).build(),
                None => builder.build(),
            }
        };
        let calls = TokenBucket::per_second(CALLS_PER_SECOND).burst(BURST);
        let wrong_tokens = Penalty::after(WRONG_TOKENS).within(MINUTE).lasting(MINUTE);
        Self {
            wrong_tokens: Limiter::new(
                store(STRANGERS),
                Policy::new("admin-wrong-tokens", wrong_tokens),
            ),
            known: Limiter::new(store(KNOWN), Policy::new("admin-calls", calls)),
            strangers: Limiter::new(store(STRANGERS), Policy::new("admin-calls", calls)),
        }
    }

    /// Compares a token with the secret. After too many wrong ones from a peer it compares none
    /// for a while, so that even the right one says nothing.
    pub(super) async fn check_token(
        &self,
        bearer: &Bearer,
        token: &[u8],
        head: &RequestHead<'_>,
    ) -> Result<(), Problem> {
        let peer = peer(head);
        let decided = self.wrong_tokens.check_now(peer.clone());
        if let Some(wait) = wait(decided) {
            return Err(Problem::new(Code::TooManyWrongTokens).retry_after(wait));
        }
        if bearer.is_token(token) {
            return Ok(());
        }
        let struck = self.wrong_tokens.strike(peer, 1).await;
        let left = struck
            .ok()
            .and_then(|decision| Some(decision.policies().next()?.remaining()));
        if left == Some(0) {
            telemetry::admin_attempts_denied(address(head));
        }
        Err(Problem::new(Code::WrongToken))
    }

    /// Counts a call.
    pub(super) fn count_call(&self, budget: &Budget) -> Result<(), Problem> {
        let decided = match budget {
            Budget::Known(key) => self.known.check_now(key.clone()),
            Budget::Stranger(key) => self.strangers.check_now(key.clone()),
        };
        match wait(decided) {
            Some(wait) => Err(Problem::new(Code::TooManyCalls).retry_after(wait)),
            None => Ok(()),
        }
    }
}

/// Returns the wait of a denial. A memory store always decides.
fn wait(decided: Result<Decision, StoreError>) -> Option<Duration> {
    match decided {
        Ok(decision) if decision.is_allowed() => None,
        Ok(decision) => Some(decision.retry_after().unwrap_or(MINUTE)),
        Err(_) => Some(MINUTE),
    }
}

/// Returns the address of the socket's peer, for logs.
pub(super) fn address(head: &RequestHead<'_>) -> Option<IpAddr> {
    key::peer().address(head).ok()
}

/// Returns the key of the socket's peer, an IPv6 address by its /64. All requests without a peer
/// have one key.
pub(super) fn peer(head: &RequestHead<'_>) -> Key {
    key::peer()
        .extract(head)
        .unwrap_or_else(|_| Key::everyone())
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use http::Request;

    use super::{Attempts, Bearer, Budget, STRANGERS};
    use crate::{RequestHead, key::PeerAddr};

    /// Of most addresses only a count that they share is kept.
    #[tokio::test]
    async fn many_addresses_do_not_grow_the_memory() {
        let attempts = Attempts::new(None);
        let bearer = Bearer::new("sixteen-or-more-letters").expect("a secret");
        for number in 0..4 * u32::try_from(STRANGERS).expect("a number") {
            let peer = SocketAddr::from((Ipv4Addr::from_bits(number), 1));
            let request = Request::get("/").extension(PeerAddr(peer)).body(());
            let request = request.expect("a request");
            let head = RequestHead::from(&request);
            for _ in 0..2 {
                let _ = attempts.check_token(&bearer, b"guess", &head).await;
            }
            let _ = attempts.count_call(&Budget::Stranger(super::peer(&head)));
        }
        // At most as many as are remembered, and half as many cells.
        for limiter in [&attempts.wrong_tokens, &attempts.strangers] {
            let kept = limiter
                .metrics()
                .store
                .memory_buckets
                .expect("a memory store");
            let most = u64::try_from(STRANGERS * 2).expect("a number");
            assert!(kept > 1_000 && kept <= most, "{kept}");
        }
        // Those with access are kept apart.
        let known = attempts.known.metrics().store;
        assert_eq!(known.memory_buckets, Some(0));
    }
}
