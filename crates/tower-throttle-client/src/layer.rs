//! [`OutboundLayer`]: the settings of a client's calls.

use std::{fmt, sync::Arc, time::Duration};

use tower::Layer;
use tower_throttle::{Key, Limiter, RequestHead};

use crate::{Dialect, LayerError, Outbound, settings::Settings, told::Dialects, unread::Unread};

/// Paces the calls of a client, and pauses them when the partner says so, in all processes that
/// share the limiter's store.
///
/// It waits for room before each call, for at most [`max_wait`](Self::max_wait). It reads each
/// response, and pauses calls if the partner
///
/// - refuses a call: status 429, any other error with `Retry-After`, 403 with nothing left, gRPC
///   `RESOURCE_EXHAUSTED`, or `UNAVAILABLE` with a time. The pause lasts as long as the partner says,
///   or for the [default](Self::default_pause);
/// - says that nothing is left of a window, in `RateLimit`, `X-RateLimit-Remaining`, or the fields of
///   another [dialect](Self::dialect). The pause lasts until that window ends.
///
/// If the limiter has several [`Pause`](tower_throttle::Pause) policies, the one pauses that is named
/// like the limit that the partner names, and otherwise the last one: see
/// [`policy_key`](Self::policy_key).
///
/// No pause is longer than [`longest_pause`](Self::longest_pause), whatever the partner sends. A field
/// that cannot be read counts as not said. It is [counted](Self::unread_fields), and logged once for
/// each partner. Status, fields and body of a response pass unchanged. If there is no room, the call
/// has an [error](crate::OutboundError), and no response that the partner did not send.
#[derive(Clone)]
#[must_use]
pub struct OutboundLayer(Settings);

impl OutboundLayer {
    /// Makes a layer of a limiter. One of its policies must be a [`Pause`](tower_throttle::Pause).
    ///
    /// # Errors
    ///
    /// Returns an error if no policy is a pause.
    pub fn new(limiter: Limiter) -> Result<Self, LayerError> {
        let settings = Settings {
            limiter,
            key: None,
            policy_keys: Vec::new(),
            cost: None,
            max_wait: Duration::from_secs(30),
            default_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(600),
            dialects: Dialects::default(),
            unread: Arc::new(Unread::default()),
        };
        let pause = settings.pausing_policy(None);
        pause.ok_or(LayerError::missing_pause())?;
        Ok(Self(settings))
    }

    /// Sets whose limit a call counts against: an account of the partner, or an endpoint. Default: the
    /// host of the request in one spelling, and its port, unless that is 80 or 443.
    ///
    /// All processes that call for the same account must find the same key.
    pub fn key(mut self, key: impl Fn(&RequestHead<'_>) -> Key + Send + Sync + 'static) -> Self {
        self.0.key = Some(Arc::new(key));
        self
    }

    /// Sets the key of one policy, in place of the [layer's](Self::key): a limit of a route beside one
    /// of the host.
    ///
    /// ```
    /// use tower_throttle::{Key, LeakyBucket, Limiter, MemoryStore, Pause, Policy, RequestHead};
    /// use tower_throttle_client::OutboundLayer;
    ///
    /// let calls = Limiter::builder()
    ///     .store(MemoryStore::new())
    ///     .policy(Policy::new("host", LeakyBucket::per_second(50).queue(200)))
    ///     .policy(Policy::new("global", Pause))
    ///     .policy(Policy::new("route", LeakyBucket::per_second(5).queue(20)))
    ///     .policy(Policy::new("route-pauses", Pause))
    ///     .build()?;
    /// let route = |head: &RequestHead<'_>| Key::from((head.uri().host().unwrap_or(""), head.uri().path()));
    /// let layer = OutboundLayer::new(calls)?
    ///     .policy_key("route", route)?
    ///     .policy_key("route-pauses", route)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Here, a route that is used up pauses alone: pauses begin in the last
    /// [`Pause`](tower_throttle::Pause) policy. If the partner names the limit, such as Discord with
    /// `X-RateLimit-Scope: global`, the pause of that name begins, here for the whole host.
    ///
    /// # Errors
    ///
    /// Returns an error if the limiter has no policy of this name.
    pub fn policy_key(
        mut self,
        policy: &str,
        key: impl Fn(&RequestHead<'_>) -> Key + Send + Sync + 'static,
    ) -> Result<Self, LayerError> {
        let policies = self.0.limiter.inspect().policies();
        if !policies.iter().any(|known| *known.name == *policy) {
            return Err(LayerError::unknown_policy(policy));
        }
        self.0.policy_keys.retain(|(name, _)| name != policy);
        self.0.policy_keys.push((policy.to_owned(), Arc::new(key)));
        Ok(self)
    }

    /// Adds fields in which a partner states its limits. They have precedence over the dialects that
    /// the layer knows. The [guide] lists those.
    ///
    /// [guide]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/outbound/#what-is-read
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.0.dialects.add(dialect);
        self
    }

    /// Returns how many fields of responses could not be read, in this layer and its clones. Each is
    /// logged once for each partner, under the target `tower_throttle::client`.
    #[must_use]
    pub fn unread_fields(&self) -> u64 {
        self.0.unread.count()
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
