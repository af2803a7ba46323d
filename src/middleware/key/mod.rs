//! Keys: which caller a request is charged to.
//!
//! A [`KeyExtractor`] reads a caller's [`Key`] from the head of a request. The functions
//! here make the usual extractors, and a closure makes any other:
//!
//! ```
//! use tower_throttle::{RequestHead, Key, key};
//!
//! #[derive(Clone)]
//! struct User { id: u64 }
//!
//! let by_user_else_address = key::extension(|user: &User| user.id).or(key::peer());
//! let per_client_and_method = (key::peer(), key::method());
//! let by_user_without_it =
//!     |head: &RequestHead<'_>| head.extensions().get::<User>().map(|user| Key::from(user.id));
//! # fn takes(_: impl key::KeyExtractor) {}
//! # takes(by_user_else_address); takes(per_client_and_method); takes(by_user_without_it);
//! ```
//!
//! **Use what authentication found.** A client chooses its headers and cookies. If nothing
//! checks them, each invented value has a bucket of its own, and no limit holds.
//! [`extension`] reads the user, session or tenant that an authentication layer outside the limiter
//! has put into the request:
//!
//! ```
//! use axum::{Router, extract::Request, http::StatusCode, middleware::{self, Next}, response::Response, routing::get};
//! use tower_throttle::{Policy, RateLimitLayer, TokenBucket, key};
//!
//! #[derive(Clone)]
//! struct User { id: u64 }
//!
//! async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
//!     let token = request.headers().get("authorization");
//!     let user = token.and_then(|token| user_of(token.as_bytes()));
//!     request.extensions_mut().insert(user.ok_or(StatusCode::UNAUTHORIZED)?);
//!     Ok(next.run(request).await)
//! }
//!
//! fn user_of(token: &[u8]) -> Option<User> {
//!     (token == b"Bearer s3cret").then_some(User { id: 7 }) // look it up here
//! }
//!
//! let per_user = Policy::new("user", TokenBucket::per_second(10))
//!     .key(key::extension(|user: &User| user.id));
//! let app: Router = Router::new()
//!     .route("/", get(|| async {}))
//!     .layer(RateLimitLayer::new(per_user))
//!     .layer(middleware::from_fn(authenticate)) // added later, so it runs first
//!     .layer(RateLimitLayer::new(TokenBucket::per_second(100))); // failed logins count, too
//! ```
//!
//! **Clients choose the host name, too.** [`header("host")`](header) reads it where the protocol has
//! it, in one spelling. Compare it with the hosts that you serve:
//!
//! ```
//! use tower_throttle::{Key, RequestHead, key::{self, KeyExtractor}};
//!
//! const TENANTS: [&str; 2] = ["acme.example", "globex.example"];
//!
//! fn by_tenant(head: &RequestHead<'_>) -> Option<Key> {
//!     let host = key::header("host").extract(head).ok()?;
//!     TENANTS.into_iter().map(Key::from).find(|tenant| *tenant == host)
//! }
//!
//! let request = |host: &str| http::Request::get("/").header("host", host).body(()).unwrap();
//! let key = |host| by_tenant.extract(&RequestHead::from(&request(host)));
//! assert_eq!(key("acme.example"), key("ACME.example:443"));
//! assert!(key("invented.example").is_err());
//! ```
//!
//! **The cost of reading a key** is linear in the size of the headers that it is read from. The
//! HTTP server bounds that size; at most 64 entries of forwarding headers are read. A key of up to
//! 72 bytes is not allocated, with 5 bytes of overhead for each part. A store keeps a hash of fixed
//! size. While a check waits for Redis, the key itself is held for each policy.

mod address;
mod client_ip;
mod combine;
mod credential;
mod error;
mod forwarded;
mod host;
mod known;
pub(crate) mod request_head;
mod source;
mod typed;

#[cfg(feature = "axum")]
pub use self::known::matched_route;
pub use self::{
    address::AddressReader,
    client_ip::{ClientIp, PeerAddr, client_ip, peer},
    combine::Extractor,
    credential::{bearer_token, cookie, header},
    error::KeyError,
    host::Host,
    known::{extension, global, method},
    source::KeySource,
};
pub(crate) use self::{
    address::key_of_address,
    known::known_method,
    request_head::{HeadReader, RequestHead},
    typed::{typed_address, typed_key},
};
use crate::ConfigError;
pub(crate) use crate::caller_key::Key;

/// Reads a caller's key from the head of a request.
///
/// Closures `Fn(&RequestHead<'_>) -> R` are extractors where `R` is a [`Key`], an
/// `Option<Key>` (`None`: the key is [missing](KeyError::missing)), or a
/// `Result<Key, KeyError>`. To leave some requests unlimited, use
/// [`when`](crate::Policy::when) or
/// [`OnMissingKey::Skip`](crate::OnMissingKey::Skip).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not read a key from a request",
    note = "use a function of `tower_throttle::key`, or a closure `|head: &RequestHead<'_>| -> Option<Key>`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Returns the key of the caller: the same one each time for the same request. It is asked once
    /// for each request and policy, and once more if a store denies the request after a round trip.
    ///
    /// # Errors
    ///
    /// Returns [`KeyError::missing`] if the request lacks the key;
    /// [`on_missing_key`](crate::Policy::on_missing_key) decides what happens then. Returns
    /// [`KeyError::ambiguous`] if it could be read in several ways; the response is 403. Returns
    /// [`KeyError::misconfigured`] if the application lacks a part; the response is 500.
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError>;

    /// Checks the extractor's own settings when a layer is built.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names what to change. By default, there is no error.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Returns what the key is read from: operators see it, and can name a caller only by what may be
    /// a key. Default: the application.
    fn source(&self) -> KeySource {
        KeySource::Application
    }

    /// Uses `other` if this key is missing. The types of this module have the same method
    /// without an import.
    ///
    /// Keys of different alternatives never collide, because the key records its alternative. So a
    /// client cannot act as another one by sending that one's address as a header.
    fn or<K: KeyExtractor>(self, other: K) -> Extractor
    where
        Self: Sized,
    {
        combine::first_of(self, other)
    }
}

impl KeyExtractor for std::sync::Arc<dyn KeyExtractor> {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        (**self).extract(head)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }

    fn source(&self) -> KeySource {
        (**self).source()
    }
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&RequestHead<'_>) -> R + Send + Sync + 'static,
    R: IntoKey,
{
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        self(head).into_key()
    }
}

/// What a closure that reads a key may return.
#[diagnostic::on_unimplemented(
    message = "a closure that reads a key cannot return `{Self}`",
    note = "return a `Key`, an `Option<Key>` or a `Result<Key, KeyError>`: `Key::from` takes text, numbers, addresses and tuples of them"
)]
pub trait IntoKey {
    /// Returns the key, or why there is none.
    ///
    /// # Errors
    ///
    /// Returns the [`KeyError`] that the value holds.
    fn into_key(self) -> Result<Key, KeyError>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self)
    }
}

impl IntoKey for Option<Key> {
    fn into_key(self) -> Result<Key, KeyError> {
        self.ok_or(KeyError::missing())
    }
}

impl IntoKey for Result<Key, KeyError> {
    fn into_key(self) -> Result<Key, KeyError> {
        self
    }
}
