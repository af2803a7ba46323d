//! Which header fields report the limits.

/// Which header fields report the limits to clients.
///
/// The IETF drafts and the older formats use some of the same names for different things,
/// so a layer sends exactly one format. [`Draft10`](Self::Draft10) reports all policies.
/// The others report one: the policy that denied with the longest wait, or else the one
/// with the fewest units left.
///
/// If an inner layer or service already set one of these fields, none is added, because
/// mixed values would be wrong. Only lists are appended to lists. So give stacked layers
/// the same format.
///
/// # What the reset means
///
/// | format | an allowed response | a denial |
/// |---|---|---|
/// | [`Draft10`](Self::Draft10), [`Draft7`](Self::Draft7), [`Draft6`](Self::Draft6) | seconds in which a client that uses at most the remaining units is not denied; for a bucket, fewer as units are used | seconds until the request has room |
/// | [`XRateLimitEpoch`](Self::XRateLimitEpoch) | the time at which all units are back if the caller uses no more; later as units are used | the same |
/// | [`XRateLimitDelta`](Self::XRateLimitDelta) | seconds until that time | the same |
///
/// All values are rounded up. `Retry-After` is the wait of a denied request in every
/// format, so it is shorter than `X-RateLimit-Reset` unless all units come back at once. No
/// reset is sent if waiting does not help, or under a [`Concurrency`](crate::Concurrency)
/// policy, whose release times are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFormat {
    /// `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=60;t=36`: the lists of
    /// draft-ietf-httpapi-ratelimit-headers-08 to -11, as -10 defines them. They hold all policies,
    /// including those of stacked layers. This is the default.
    ///
    /// `t` is a time in seconds. On an allowed response, a client that uses at most `r` units
    /// in it is not denied. On a denial, it is the wait.
    ///
    /// If a bucket's burst differs from its limit, the parameter `tt-burst` holds the burst.
    /// The draft lets vendors add parameters with a prefix, which is `tt-` for this crate.
    /// Clients ignore parameters that they do not know.
    #[default]
    Draft10,
    /// `RateLimit: limit=100, remaining=60, reset=36` and
    /// `RateLimit-Policy: 100;w=60`: draft -07.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` and
    /// `RateLimit-Policy: 100;w=60`: drafts -04 to -06.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as GitHub
    /// sends them. The reset is the time at which all units are back, in seconds since the
    /// UNIX epoch. A client that waits until then has its whole limit again.
    XRateLimitEpoch,
    /// Like `XRateLimitEpoch`, with `X-RateLimit-Reset` in seconds from now.
    XRateLimitDelta,
    /// No fields. `Retry-After` is still sent.
    None,
}
