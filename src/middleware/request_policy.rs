//! The methods of a [`Policy`] that read a request.

use std::{any::type_name, sync::Arc, time::Duration};

use super::{
    erased::Erased,
    key::{KeyExtractor, RequestHead},
    readers::OnMissingKey,
    settle::Settler,
};
use crate::{Policy, Quota};

/// What a policy reads from each request, for a
/// [`RateLimitLayer`](crate::RateLimitLayer). A [`Limiter`](crate::Limiter) has no request
/// and returns an error for such a policy when it is built.
impl Policy {
    /// How long a policy that settles holds units, unless [`hold_for`](Self::hold_for) sets another
    /// time.
    pub const DEFAULT_HOLD_FOR: Duration = Duration::from_secs(60);

    /// Sets the key of a request's caller. Default: the
    /// [peer address](crate::key::peer), or one bucket for all if the policy is
    /// [shared](Self::shared).
    ///
    /// The key is one of the functions of [`key`](crate::key), or a closure, whose argument
    /// needs its type:
    ///
    /// ```
    /// use tower_throttle::{RequestHead, Key, Policy, TokenBucket, key};
    ///
    /// #[derive(Clone)]
    /// struct Tenant { id: u64 } // inserted by your authentication
    ///
    /// let tenants = Policy::new("tenants", TokenBucket::per_second(50))
    ///     .key(key::extension(|tenant: &Tenant| tenant.id));
    /// let same = Policy::new("same", TokenBucket::per_second(50))
    ///     .key(|head: &RequestHead<'_>| head.extensions().get::<Tenant>().map(|t| Key::from(t.id)));
    /// ```
    ///
    /// **The danger**: if the client chooses the key, the policy limits no client, because each
    /// invented value has a bucket of its own. Clients choose headers, cookies, paths and
    /// `uri().host()`. The [`key`](crate::key) module shows better keys.
    pub fn key<K: KeyExtractor>(mut self, key: K) -> Self {
        self.readers.key = Some(Erased(Arc::new(key), type_name::<K>()));
        self
    }

    /// Reads the cost of each request from its head. Default: the policy's own
    /// [`cost`](Self::cost).
    ///
    /// A cost of 0 checks without taking. A cost above the capacity is denied with 403, as
    /// waiting does not help.
    ///
    /// **The danger**: a client that states its own cost states a low one.
    pub fn cost_by<F>(mut self, cost: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> u64 + Send + Sync + 'static,
    {
        self.readers.cost_by = Some(Erased(Arc::new(cost), type_name::<F>()));
        self
    }

    /// Applies the policy only to requests for which `applies` returns `true`. Default: all
    /// requests of the layer.
    pub fn when<F>(mut self, applies: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
    {
        self.readers.when = Some(Erased(Arc::new(applies), type_name::<F>()));
        self
    }

    /// Chooses the quota of each request: tiers. Default: the policy's own quota. Create the
    /// quotas at start-up and return copies; see [`Quota`].
    ///
    /// The policy's own quota is then never applied.
    /// [`build`](crate::RateLimitLayerBuilder::build) checks a fixed [`cost`](Self::cost)
    /// against it, so give the smallest. A tier that can never grant the cost of a request
    /// denies it with 403.
    ///
    /// **The danger**: a caller that can change the choice from request to request gets more
    /// than any of the quotas. Its bucket is read under several of them, and there is one for
    /// each algorithm. So let the choice depend on the caller alone, and give each kind of
    /// request a policy of its own.
    pub fn quota_by<F>(mut self, quota: F) -> Self
    where
        F: Fn(&RequestHead<'_>) -> Quota + Send + Sync + 'static,
    {
        self.readers.quota_by = Some(Erased(Arc::new(quota), type_name::<F>()));
        self
    }

    /// Sets what to do with a request that lacks the key. Default:
    /// [`OnMissingKey::Deny`].
    pub const fn on_missing_key(mut self, choice: OnMissingKey) -> Self {
        self.readers.on_missing_key = Some(choice);
        self
    }

    /// Holds the cost of each request while it is in flight, and settles it by its response.
    /// Default: the cost is charged when the request is admitted.
    ///
    /// Use it to count failures only, or for a cost that is known afterwards: tokens of a language
    /// model, bytes of a stream. The settler is one of the functions of [`settle`](crate::settle),
    /// or a closure, whose argument needs its type:
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_throttle::{FixedWindow, Outcome, Policy, Settle, TokenBucket, settle};
    ///
    /// // Ten wrong passwords an hour. Right ones are free.
    /// let login = Policy::new("login", FixedWindow::per_hour(10))
    ///     .settle_by(|outcome: &Outcome<'_>| match outcome.status() {
    ///         Some(StatusCode::UNAUTHORIZED) => Settle::Full,
    ///         Some(_) => Settle::Release,
    ///         // The client has hung up, or the handler failed.
    ///         None => Settle::Full,
    ///     });
    ///
    /// // Holds the highest cost of an answer, and charges its real cost.
    /// let tokens = Policy::new("tokens", TokenBucket::per_minute(100_000))
    ///     .cost(4_000)
    ///     .max_debt(50_000)
    ///     .settle_by(settle::header("x-tokens-used"));
    /// ```
    ///
    /// A request is admitted if its cost fits in what is neither used nor held, so concurrent requests
    /// cannot exceed the limit together. Each request is settled once: by a
    /// [`Hold`](crate::Hold), which its handler finds in the extensions of the request, by the
    /// settler, or by its drop. The settlement never delays or changes a response. Units above the
    /// hold become a debt of the caller, up to [`max_debt`](Self::max_debt).
    ///
    /// A hold lasts for [`hold_for`](Self::hold_for), a minute by default, and is extended while
    /// the request lasts. If the process dies, the hold lapses and is charged in full.
    ///
    /// **The danger**: while requests are in flight, others may be denied that would fit once the
    /// settler releases the first. A burst of ten *right* passwords fills the limit above until they
    /// are answered. With a [cost](Self::cost) of 0 no unit is held, and the charge of the settler
    /// comes afterwards: then wrong passwords exceed the limit by the number that is in flight.
    ///
    /// Under a [`Penalty`](crate::Penalty) no unit is held, and the units of the settler are strikes:
    /// one for [`Settle::Full`](crate::Settle::Full). A request without a response is not a strike,
    /// and the settler does not run. The settler also does not run for a body that was dropped
    /// before its end.
    ///
    /// Settings that exclude [`hold_for`](Self::hold_for) are a
    /// [`ConfigError`](crate::ConfigError) here, too. A tier of [`quota_by`](Self::quota_by) that
    /// cannot hold is charged when the request is admitted.
    pub fn settle_by<S: Settler>(mut self, settler: S) -> Self {
        self.readers.settle_by = Some(Erased(Arc::new(settler), type_name::<S>()));
        self.hold_for.get_or_insert(Self::DEFAULT_HOLD_FOR);
        self
    }
}
