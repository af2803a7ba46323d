//! Which header fields report the limits.

/// Which header fields report the limits to clients.
///
/// The IETF drafts and the older forms use some of the same names for other
/// things, so a layer sends exactly one form. All but the list report one policy: the
/// one that refused with the longest wait, or else the one with the fewest
/// units left. If the response of an inner layer or service has one of a form's fields,
/// those stay and none is added: fields of two sources would be
/// untrue together. Only lists are appended to other lists. So give stacked layers one
/// form.
///
/// # What the reset means
///
/// | form | an allowed response | a denial |
/// |---|---|---|
/// | [`Draft10`](Self::Draft10), [`Draft7`](Self::Draft7), [`Draft6`](Self::Draft6) | seconds over which the remaining units may be spread with none of them refused: of a bucket, fewer as units are used up | seconds until the request has room |
/// | [`XRateLimitEpoch`](Self::XRateLimitEpoch) | the time at which all units are back, if the caller uses no more: never earlier as units are used up | the same |
/// | [`XRateLimitDelta`](Self::XRateLimitDelta) | seconds until that time | the same |
///
/// All are rounded up. `Retry-After` is the wait of a denied request in every form, so it
/// is shorter than an `X-RateLimit-Reset`, unless all units come back at once. No reset is
/// sent if no wait helps, or under a [`Concurrency`](crate::Concurrency) policy, whose
/// units come back at unknown times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderFormat {
    /// `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=60;t=36`:
    /// the lists of draft-ietf-httpapi-ratelimit-headers-08 to -11, by the text
    /// of -10. All policies, of stacked layers too. This is the default.
    ///
    /// `t` is the time within which at most `r` may be used. A bucket whose
    /// burst differs from its limit says so in `tt-burst`.
    #[default]
    Draft10,
    /// `RateLimit: limit=100, remaining=60, reset=36` and
    /// `RateLimit-Policy: 100;w=60`: draft -07.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` and
    /// `RateLimit-Policy: 100;w=60`: drafts -04 to -06.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as GitHub
    /// sends them: the reset is the time at which all units are back, in seconds since
    /// the UNIX epoch. A client that waits until then has its whole limit again.
    XRateLimitEpoch,
    /// The same with `X-RateLimit-Reset` in seconds from now.
    XRateLimitDelta,
    /// None. `Retry-After` is sent all the same.
    None,
}
