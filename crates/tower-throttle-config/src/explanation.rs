//! What a file does with one request: [`Explanation`].

use tower_throttle::{Key, inspect, key::KeyError};

/// What a layer of a file does with one request, from [`Limits::explain`](super::Limits::explain).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// What the layer does.
    pub layer: inspect::Explanation,
    /// The conditions of the layer. If one of them fails, it passes the request on.
    pub conditions: Vec<FoundCondition>,
    /// What each of its policies finds in the request, in their order.
    pub policies: Vec<FoundPolicy>,
}

/// What a policy of a file finds in a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundPolicy {
    /// Its conditions.
    pub conditions: Vec<FoundCondition>,
    /// Its keys. The first that finds one counts. Empty for a shared policy.
    pub keys: Vec<FoundKey>,
}

/// A condition of a file, and whether it holds for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundCondition {
    /// The condition as in the file, such as `path = "/api/**"`.
    pub text: String,
    /// Whether it holds. `None`: two servers could understand the request in different ways, so the
    /// limit applies.
    pub holds: Option<bool>,
}

/// A key of a file, and what it finds in a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundKey {
    /// The key as in the file, such as `"header:x-api-key"`.
    pub text: String,
    /// The key, or why there is none.
    pub key: Result<Key, KeyError>,
}
