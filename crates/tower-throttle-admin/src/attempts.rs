//! The limits of the admin page itself: on wrong tokens and on calls.
//!
//! They are kept in this process, in bounded memory. Those with access have a memory of their own,
//! which strangers cannot fill.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tower_throttle::{
    Clock, Decision, FixedWindow, Key, Limiter, MemoryStore, Policy, RequestHead, SlidingLog,
    TokenBucket, key,
};

use super::{
    bearer::Bearer,
    events,
    problem::{Code, Problem},
};

/// A page and its assets, and what the page asks for when it is loaded, a few times in a row.
const BURST: u64 = 60;
const CALLS_PER_SECOND: u64 = 10;
/// From one peer, in any minute.
const WRONG_TOKENS: u64 = 5;
/// From all peers together, in any minute: an IPv6 /48 has 65,536 networks that count as one peer each.
const WRONG_TOKENS_OF_ALL: u64 = 300;
const OF_ALL: &str = "admin-wrong-tokens-of-all";
const MINUTE: Duration = Duration::from_secs(60);
/// How many peers are remembered, and how many of those with access. More share cells, and may be
/// denied with each other.
const STRANGERS: usize = 10_000;
const KNOWN: usize = 1_000;

/// Counts wrong tokens and calls.
pub(crate) struct Attempts {
    /// Its store is never full: the limit on all peers together is far below its capacity.
    wrong_tokens: Limiter,
    warnings: Limiter,
    known: Limiter,
    strangers: Limiter,
}

impl Attempts {
    #[expect(clippy::expect_used, reason = "the quotas are valid")]
    pub(crate) fn new(clock: Option<&Arc<dyn Clock>>) -> Self {
        let store = |capacity| {
            let builder = MemoryStore::builder().capacity(capacity);
            match clock {
                Some(clock) => builder.clock(Arc::new(Arc::clone(clock))).build(),
                None => builder.build(),
            }
        };
        let from_one = SlidingLog::per_minute(WRONG_TOKENS);
        let from_all = SlidingLog::per_minute(WRONG_TOKENS_OF_ALL);
        let wrong_tokens = Limiter::builder()
            .store(store(STRANGERS))
            .policy(Policy::new("admin-wrong-tokens", from_one))
            .policy(Policy::new(OF_ALL, from_all).shared());
        let warnings = Policy::new("admin-warnings", FixedWindow::per_minute(1));
        let calls = TokenBucket::per_second(CALLS_PER_SECOND).burst(BURST);
        let calls = Policy::new("admin-calls", calls);
        Self {
            wrong_tokens: wrong_tokens.build().expect("the quotas are valid"),
            warnings: Limiter::new(store(KNOWN), warnings),
            known: Limiter::new(store(KNOWN), calls.clone()),
            strangers: Limiter::new(store(STRANGERS), calls),
        }
    }

    /// Compares a token with the secret. After too many wrong ones from a peer, or from all peers
    /// together, it compares none for a while, so that even the right token gets no answer.
    pub(crate) async fn check_token(
        &self,
        bearer: &Bearer,
        token: &[u8],
        head: &RequestHead<'_>,
    ) -> Result<(), Problem> {
        let peer = peer(head);
        // Counted before it is compared, so that tokens sent at the same time do not exceed the limit.
        let decision = count(&self.wrong_tokens, peer.clone(), Code::TooManyWrongTokens)?;
        if bearer.is_token(token) {
            let refund = self.wrong_tokens.credit(peer, 1).await;
            debug_assert!(refund.is_ok(), "a memory store refunds: {refund:?}");
            return Ok(());
        }
        self.warn(&decision, head);
        Err(Code::WrongToken.into())
    }

    /// Logs which limits on wrong tokens are used up, each once a minute.
    fn warn(&self, decision: &Decision, head: &RequestHead<'_>) {
        let used_up = decision.policies().filter(|policy| policy.remaining() == 0);
        for policy in used_up {
            let is_of_all = policy.name() == OF_ALL;
            let key = if is_of_all { OF_ALL.into() } else { peer(head) };
            let is_first = self.warnings.check_now(key);
            match is_of_all {
                _ if !is_first.is_ok_and(|first| first.is_allowed()) => {}
                true => events::attempts_of_all_denied(),
                false => events::attempts_denied(address(head)),
            }
        }
    }

    /// Counts a call.
    pub(crate) fn count_call(&self, is_known: bool, key: Key) -> Result<(), Problem> {
        let limiter = match is_known {
            true => &self.known,
            false => &self.strangers,
        };
        count(limiter, key, Code::TooManyCalls).map(drop)
    }
}

/// Counts something, or returns a problem with the wait. A memory store always decides.
fn count(limiter: &Limiter, key: Key, code: Code) -> Result<Decision, Problem> {
    let wait = match limiter.check_now(key) {
        Ok(decision) if decision.is_allowed() => return Ok(decision),
        denied => denied.ok().and_then(|decision| decision.retry_after()),
    };
    Err(Problem {
        retry_after: wait.or(Some(MINUTE)),
        ..code.into()
    })
}

/// Returns the address of the socket's peer, for logs.
pub(crate) fn address(head: &RequestHead<'_>) -> Option<IpAddr> {
    key::peer().address(head).ok()
}

/// Returns the key of the socket's peer, an IPv6 address by its /64. All requests without a peer
/// have one key.
pub(crate) fn peer(head: &RequestHead<'_>) -> Key {
    key::peer()
        .extract(head)
        .unwrap_or_else(|_| Key::everyone())
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use http::Request;

    use super::{Attempts, Bearer, STRANGERS, WRONG_TOKENS_OF_ALL};
    use tower_throttle::{Limiter, RequestHead, key::PeerAddr};

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
            let _ = attempts.check_token(&bearer, b"guess", &head).await;
            let key = super::peer(&head);
            let _ = attempts.count_call(false, key);
        }
        let kept = |limiter: &Limiter| limiter.metrics().store.memory_buckets;
        // At most as many as are remembered, and half as many cells.
        let strangers = kept(&attempts.strangers).expect("a memory store");
        let most = u64::try_from(STRANGERS * 2).expect("a number");
        assert!(strangers > 1_000 && strangers <= most, "{strangers}");
        // Those whose tokens were compared, and the count of all.
        let guessing = kept(&attempts.wrong_tokens).expect("a memory store");
        assert_eq!(guessing, WRONG_TOKENS_OF_ALL + 1);
        // Those with access are kept apart.
        assert_eq!(kept(&attempts.known), Some(0));
    }
}
