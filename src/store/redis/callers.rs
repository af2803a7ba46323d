//! The callers that have a bucket.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::{RedisStore, SendMode, client_reply::Reply, connection::Command, unleased::Servers};
use crate::{Fingerprint, StoreError, error::StoreErrorKind, store::in_runtime::InRuntime};

/// How many keys a server looks at in one call: less than a millisecond of its time.
const KEYS_PER_CALL: usize = 1_000;

/// The callers that have a bucket of a policy, from [`RedisStore::callers`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownCallers {
    /// The callers, in arbitrary order.
    pub fingerprints: Vec<Fingerprint>,
    /// Whether the search saw all keys. If not, it ended at the bound.
    pub is_complete: bool,
}

impl RedisStore {
    /// Looks for the callers that have a bucket of a policy: for a list of the callers that use
    /// most, with [`Limiter::peek`](crate::Limiter::peek) of each.
    ///
    /// It asks for the names of keys with `SCAN`, about 1,000 at a time, on all primaries of a
    /// cluster, until it has looked at `most_scanned` keys. Each key of the database counts, not
    /// only those of the policy. A caller whose bucket is full, or was made meanwhile, may be
    /// missing. The user needs the right `+scan`.
    ///
    /// ```no_run
    /// use tower_throttle::{Limiter, RedisStore};
    ///
    /// # async fn example(redis: RedisStore, search: Limiter) -> Result<(), tower_throttle::StoreError> {
    /// for fingerprint in redis.callers("search", 100_000).await?.fingerprints {
    ///     println!("{fingerprint}: {:?}", search.peek(fingerprint).await?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a server does not answer a call within the
    /// [timeout](super::RedisStoreBuilder::timeout).
    pub async fn callers(
        &self,
        policy: &str,
        most_scanned: usize,
    ) -> Result<KnownCallers, StoreError> {
        let search = self.search(policy, most_scanned);
        InRuntime::new(self.store.shared.runtime.clone(), search).await
    }

    async fn search(&self, policy: &str, most_scanned: usize) -> Result<KnownCallers, StoreError> {
        let shared = &self.store.shared;
        let servers = match self.store.servers()? {
            Servers::One(dispatcher) => vec![dispatcher],
            Servers::Cluster { cluster, .. } => {
                let deadline = Instant::now() + shared.timeout;
                cluster.wait_until_found(deadline).await?;
                cluster.dispatchers()
            }
        };
        let pattern = shared.names.pattern(policy);
        // Each primary has about the same share of the keys.
        let calls = most_scanned
            .div_ceil(KEYS_PER_CALL * servers.len().max(1))
            .max(1);
        let mut callers = BTreeSet::new();
        let mut is_complete = true;
        for server in servers {
            let mut cursor = "0".to_owned();
            for _ in 0..calls {
                let deadline = Instant::now() + shared.timeout;
                let scan = Command::Scan {
                    cursor,
                    pattern: pattern.clone(),
                    count: KEYS_PER_CALL,
                };
                let page = server.server.send(&scan, SendMode::Alone, deadline);
                let page = page_of(page.await?);
                let (next, names) = page.ok_or_else(|| {
                    StoreError::with_source(StoreErrorKind::ForeignReply, "no reply to SCAN")
                })?;
                callers.extend(names.iter().filter_map(|name| match name {
                    Reply::Text(name) => Fingerprint::in_storage_key(name),
                    _ => None,
                }));
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
            is_complete &= cursor == "0";
        }
        Ok(KnownCallers {
            fingerprints: callers.into_iter().collect(),
            is_complete,
        })
    }
}

/// Reads a reply to `SCAN`: the next cursor, and names of keys.
fn page_of(reply: Reply) -> Option<(String, Vec<Reply>)> {
    let Reply::Array(parts) = reply else {
        return None;
    };
    match <[Reply; 2]>::try_from(parts).ok()? {
        [Reply::Text(cursor), Reply::Array(names)] => Some((cursor, names)),
        // The client takes a cursor for the number that it is.
        [Reply::Integer(cursor), Reply::Array(names)] => Some((cursor.to_string(), names)),
        _ => None,
    }
}
