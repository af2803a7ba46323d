//! The settings of a client's calls, as a call reads them.

use std::{sync::Arc, time::Duration};

use tower_throttle::{Algorithm, Key, Limiter, RequestHead};

use crate::{told::Dialects, unread::Unread};

pub(crate) type Reader<T> = Arc<dyn Fn(&RequestHead<'_>) -> T + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limiter: Limiter,
    /// `None`: the partner that is called.
    pub(crate) key: Option<Reader<Key>>,
    /// The policies with a key of their own.
    pub(crate) policy_keys: Vec<(String, Reader<Key>)>,
    pub(crate) cost: Option<Reader<u64>>,
    pub(crate) max_wait: Duration,
    pub(crate) default_pause: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) dialects: Dialects,
    pub(crate) unread: Arc<Unread>,
}

impl Settings {
    /// Returns the policy that pauses for a limit of this name: the [`Pause`](tower_throttle::Pause) of
    /// the same name, or the last one. `None` if a reload has removed all.
    pub(crate) fn pausing_policy(&self, limit: Option<&str>) -> Option<String> {
        let policies = self.limiter.inspect().policies();
        let pauses = policies.iter().filter(|policy| {
            let quota = policy.quota.as_ref();
            quota.is_some_and(|quota| quota.algorithm() == Algorithm::Pause)
        });
        let mut names = pauses.map(|policy| policy.name.to_string());
        let named = names.clone().find(|name| Some(&**name) == limit);
        named.or_else(|| names.next_back())
    }
}
