//! What a key is read from, for operators.

use std::fmt;

use crate::{Fingerprint, Key};

/// What a policy counts by: what its key is read from, by
/// [`KeyExtractor::source`](super::KeyExtractor::source).
///
/// ```
/// use tower_throttle::key::{self, KeyExtractor};
///
/// let source = key::header("x-api-key").or(key::peer()).source();
/// assert_eq!(source.to_string(), "the header `x-api-key`, or else the client's address");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// All callers together: they have one bucket.
    Everyone,
    /// The client's address.
    ClientAddress,
    /// A header of this name.
    Header(String),
    /// A cookie of this name.
    Cookie(String),
    /// The bearer token.
    BearerToken,
    /// The method.
    Method,
    /// The route that axum matched.
    Route,
    /// The application: it reads the key itself, or puts it into an extension.
    Application,
    /// All of these together.
    All(Vec<Self>),
    /// The first of these that a request has.
    FirstOf(Vec<Self>),
}

impl KeySource {
    pub(crate) fn is_everyone(&self) -> bool {
        *self == Self::Everyone
    }

    /// Returns why this key cannot be one of the source, and how to name a caller.
    pub(crate) fn refusal_of(&self, key: &Key) -> Option<String> {
        let (is_right, name) = match self {
            Self::ClientAddress => (key.is_address(), "ip:ADDRESS"),
            Self::Header(_) | Self::Cookie(_) | Self::BearerToken | Self::Method | Self::Route => {
                (key.is_text(), "text:VALUE")
            }
            _ => return None,
        };
        // Requests without a key may share one.
        let is_possible =
            is_right || *key == Key::missing() || Fingerprint::of_key(key.as_bytes()).is_some();
        (!is_possible).then(|| format!("the policy counts by {self}; name the caller as {name}"))
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everyone => f.write_str("all callers together"),
            Self::ClientAddress => f.write_str("the client's address"),
            Self::Header(name) => write!(f, "the header `{name}`"),
            Self::Cookie(name) => write!(f, "the cookie `{name}`"),
            Self::BearerToken => f.write_str("the bearer token"),
            Self::Method => f.write_str("the method"),
            Self::Route => f.write_str("the route"),
            Self::Application => f.write_str("what the application reads"),
            Self::All(all) => f.write_str(&list(all, " and ")),
            Self::FirstOf(all) => f.write_str(&list(all, ", or else ")),
        }
    }
}

fn list(all: &[KeySource], between: &str) -> String {
    let all: Vec<_> = all.iter().map(KeySource::to_string).collect();
    all.join(between)
}
