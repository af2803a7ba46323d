//! What a layer would do with a request.

use std::time::SystemTime;

use crate::{Fingerprint, Key, List, Quota, key::KeyError, overrides::Mode};

/// What a layer would do with one request, from
/// [`RateLimitLayer::explain`](crate::RateLimitLayer::explain).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Whether the layer's own [`when`](crate::RateLimitLayerBuilder::when) holds. Without it, the layer
    /// passes the request on.
    pub applies: bool,
    /// The list that decides. Then no policy is asked.
    pub list: Option<List>,
    /// Why lists cannot be asked: the layer denies the request.
    pub list_error: Option<KeyError>,
    /// The policies, in their order.
    pub policies: Vec<ExplainedPolicy>,
}

/// What a policy would do with one request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainedPolicy {
    /// Its name.
    pub name: String,
    /// Whether it is on and its [`when`](crate::Policy::when) holds.
    pub applies: bool,
    /// The key that it reads, or why there is none.
    pub key: Result<Key, KeyError>,
    /// The caller that it charges. `None` if it charges none.
    pub caller: Option<Key>,
    /// The hash of that caller, as operators see it.
    pub fingerprint: Option<Fingerprint>,
    /// The name of the bucket in Redis.
    pub storage_key: Option<String>,
    /// Whether the key is on the allow list, and other policies limit the request.
    pub is_exempt: bool,
    /// Whether the request lacks the key and is denied for that, if the policy is enforced.
    pub denies_missing_key: bool,
    /// What it charges, in units.
    pub cost: u64,
    /// The quota of this request.
    pub quota: Quota,
    /// The mode of the policy, for this caller.
    pub mode: Mode,
    /// Until when an operator has banned the caller. A shadow policy does not deny it.
    pub banned_until: Option<SystemTime>,
}
