//! The callers that have a bucket.

use std::collections::BTreeSet;

use super::{
    RedisStore, SendMode, client_reply::Reply, command::Command, deadline::Deadline,
    unleased::Servers,
};
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
            Servers::Cluster(cluster) => {
                let deadline = Deadline::after(shared.timeout);
                cluster.primaries(deadline).await?
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
                let deadline = Deadline::after(shared.timeout);
                let scan = Command::Scan {
                    cursor,
                    pattern: pattern.clone(),
                    count: KEYS_PER_CALL,
                };
                let page = server.admit(false)?.send(&scan, SendMode::Alone, deadline);
                let (next, names) = page_of(page.await?)?;
                callers.extend(names.filter_map(|name| Fingerprint::in_storage_key(&name)));
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
fn page_of(reply: Reply) -> Result<(String, impl Iterator<Item = String>), StoreError> {
    let strange = || StoreError::with_source(StoreErrorKind::ForeignReply, "no reply to SCAN");
    let Reply::Array(parts) = reply else {
        return Err(strange());
    };
    let cursor_and_names: [Reply; 2] = parts.try_into().map_err(|_| strange())?;
    let (cursor, names) = match cursor_and_names {
        [Reply::Text(cursor), Reply::Array(names)] => (cursor, names),
        // The client takes a cursor for the number that it is.
        [Reply::Integer(cursor), Reply::Array(names)] => (cursor.to_string(), names),
        _ => return Err(strange()),
    };
    let texts = names.into_iter().filter_map(|name| match name {
        Reply::Text(name) => Some(name),
        _ => None,
    });
    Ok((cursor, texts))
}
