//! [`OutboundLayer`]: the settings of a client's calls.

use std::{fmt, sync::Arc, time::Duration};

use http::{header::HOST, uri::Authority};
use tower::Layer;
use tower_throttle::{Algorithm, Key, Limiter, RequestHead};

use crate::{MissingPause, Outbound, settings::Settings};

/// Paces the calls of a client, and pauses them when the partner says so, in all processes that
/// share the limiter's store.
///
/// It waits for room before each call, for at most [`max_wait`](Self::max_wait). It reads each
/// response, and [pauses](Limiter::pause) the key if the partner
///
/// - refuses a call: status 429, any other error with `Retry-After`, gRPC `RESOURCE_EXHAUSTED`, or
///   `UNAVAILABLE` with a time. The pause lasts as long as the partner says, or for the
///   [default](Self::default_pause);
/// - says that nothing is left in `RateLimit`, `RateLimit-Remaining`, `X-RateLimit-Remaining` or
///   `X-Rate-Limit-Remaining`. The pause lasts until the partner's window ends.
///
/// No pause is longer than [`longest_pause`](Self::longest_pause), whatever the partner sends.
/// Responses pass unchanged. If there is no room, the call has an
/// [error](crate::OutboundError), and no response that the partner did not send.
///
/// Its settings have no mistakes that a build could find, so it needs none.
#[derive(Clone)]
#[must_use]
pub struct OutboundLayer(Settings);

impl OutboundLayer {
    /// Makes a layer of a limiter. One of its policies must be a [`Pause`](tower_throttle::Pause).
    ///
    /// # Errors
    ///
    /// Returns an error if no policy is a pause.
    pub fn new(limiter: Limiter) -> Result<Self, MissingPause> {
        let policies = limiter.inspect().policies();
        let mut quotas = policies.iter().filter_map(|policy| policy.quota);
        if !quotas.any(|quota| quota.algorithm() == Algorithm::Pause) {
            return Err(MissingPause(()));
        }
        Ok(Self(Settings {
            limiter,
            key: Arc::new(host),
            cost: None,
            max_wait: Duration::from_secs(30),
            default_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(600),
        }))
    }

    /// Sets whose limit a call counts against: an account of the partner, or an endpoint. Default: the
    /// host of the request, with its port.
    ///
    /// All processes that call for the same account must find the same key.
    pub fn key(mut self, key: impl Fn(&RequestHead<'_>) -> Key + Send + Sync + 'static) -> Self {
        self.0.key = Arc::new(key);
        self
    }

    /// Sets how many units a call costs, under all policies. Default: each policy's own
    /// [`cost`](tower_throttle::Policy::cost).
    pub fn cost(mut self, cost: impl Fn(&RequestHead<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.0.cost = Some(Arc::new(cost));
        self
    }

    /// Sets how long a call may wait for room. A call that would wait longer fails at once. Default: 30
    /// seconds. Zero: calls never wait.
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.0.max_wait = max_wait;
        self
    }

    /// Sets the pause if the partner refuses a call and says no time, or one that is past. Default: one
    /// second.
    pub const fn default_pause(mut self, pause: Duration) -> Self {
        self.0.default_pause = pause;
        self
    }

    /// Sets the longest pause that a partner can ask for: a partner may say a year by mistake. Default:
    /// ten minutes. After it, calls go on at the limiter's pace, until the partner refuses one again.
    pub const fn longest_pause(mut self, pause: Duration) -> Self {
        self.0.longest_pause = pause;
        self
    }
}

/// The host that a request goes to, in lower case.
fn host(head: &RequestHead<'_>) -> Key {
    let field = || head.headers().get(HOST)?.to_str().ok();
    let authority = head.uri().authority().map(Authority::as_str);
    let Some(authority) = authority.or_else(field) else {
        return Key::everyone();
    };
    let is_plain = |byte: u8| byte != b'@' && !byte.is_ascii_uppercase();
    if authority.bytes().all(is_plain) {
        return authority.into();
    }
    let host = authority.rsplit('@').next().unwrap_or(authority);
    host.to_ascii_lowercase().into()
}

impl<S> Layer<S> for OutboundLayer {
    type Service = Outbound<S>;

    fn layer(&self, client: S) -> Outbound<S> {
        Outbound::new(client, self.0.clone())
    }
}

impl fmt::Debug for OutboundLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.0;
        f.debug_struct("OutboundLayer")
            .field("limiter", &settings.limiter)
            .field("max_wait", &settings.max_wait)
            .field("default_pause", &settings.default_pause)
            .field("longest_pause", &settings.longest_pause)
            .finish_non_exhaustive()
    }
}
