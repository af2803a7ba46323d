//! [`Outcome`] and [`Settle`]: the facts about a response, and the charge of its request.

use std::{fmt, sync::OnceLock};

use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE,
};

use crate::DenialReason;

/// Tells the layer how to settle a request's held units. A closure of
/// [`Policy::settle_by`](crate::Policy::settle_by) returns it.
///
/// ```
/// use http::StatusCode;
/// use tower_throttle::{FixedWindow, Outcome, Policy, RateLimitLayer, Settle};
///
/// // A download costs a unit for each KiB of its body.
/// let egress = Policy::new("egress-kib", FixedWindow::per_day(1_000_000))
///     .cost(64)
///     .settle_by(|outcome: &Outcome<'_>| match outcome.status() {
///         None => Settle::Full, // no response
///         Some(StatusCode::NOT_MODIFIED) => Settle::Release,
///         Some(_) if !outcome.is_end() => Settle::AtEnd, // the body has not been sent yet
///         Some(_) => Settle::Units(outcome.body_bytes().div_ceil(1024)),
///     });
/// assert!(RateLimitLayer::builder().policy(egress).build().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// Charges all held units.
    Full,
    /// Charges nothing.
    Release,
    /// Charges this many units. Units above the hold become a debt, up to the policy's
    /// [`max_debt`](crate::Policy::max_debt).
    Units(u64),
    /// Runs the closure once more when the body of the response has ended. If the closure returns
    /// it again at that time, the handles that the handler still has ([`Hold`](crate::Hold)) settle
    /// the units; without a handle, they are charged.
    AtEnd,
}

/// The known facts about the response to a request, for
/// [`Policy::settle_by`](crate::Policy::settle_by).
///
/// The layer runs the closure when the head of the response has arrived. If it returns
/// [`Settle::AtEnd`], the layer runs it once more when the body has ended, has failed or was
/// dropped. Without a response (the inner service failed, or the request was dropped), the layer
/// runs it once, without a [status](Self::status). Under a [`Penalty`](crate::Penalty) it does not
/// run the closure then, nor at the end of a body that was dropped: a client that hangs up gets no
/// strike.
///
/// ```
/// use http::StatusCode;
/// use tower_throttle::{FixedWindow, Outcome, Policy, Settle};
///
/// // Wrong passwords count, right ones are free.
/// let login = Policy::new("login", FixedWindow::per_hour(10))
///     .settle_by(|outcome: &Outcome<'_>| match outcome.status() {
///         Some(StatusCode::UNAUTHORIZED) | None => Settle::Full,
///         Some(_) => Settle::Release,
///     });
/// ```
///
/// Its `Debug` shows the names of the fields only.
#[derive(Clone, Copy)]
pub struct Outcome<'a> {
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) extensions: &'a Extensions,
    pub(crate) trailers: Option<&'a HeaderMap>,
    pub(crate) body_bytes: u64,
    pub(crate) is_complete: bool,
    pub(crate) is_end: bool,
    pub(crate) held: u64,
    /// Receives the field with a cost that cannot be read.
    pub(crate) unread: Option<&'a OnceLock<HeaderName>>,
}

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

impl<'a> Outcome<'a> {
    /// Sees the head of a response.
    pub(crate) fn at_head<B>(response: &'a Response<B>, held: u64) -> Self {
        Self {
            status: Some(response.status()),
            headers: response.headers(),
            extensions: response.extensions(),
            trailers: None,
            body_bytes: 0,
            is_complete: false,
            is_end: false,
            held,
            unread: None,
        }
    }

    /// Returns the same outcome, whose settler names in `unread` a field that it cannot read.
    pub(crate) const fn reporting(self, unread: &'a OnceLock<HeaderName>) -> Self {
        let unread = Some(unread);
        Self { unread, ..self }
    }

    /// Reports a field with a cost that cannot be read.
    pub(super) fn report_unread(&self, field: &HeaderName) {
        if let Some(unread) = self.unread {
            unread.get_or_init(|| field.clone());
        }
    }

    /// Returns the status of the response. `None`: there is none, because the inner service
    /// failed, or because the request was dropped: mostly, its client hung up.
    pub const fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Returns the headers of the response, as the inner service sent them. Empty without a
    /// response.
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions of the response, in which a handler may put a value of its own. A
    /// denial by an inner layer has its [`DenialReason`] there. Empty without a response.
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the trailers, if the body has sent some. They are known at the [end](Self::is_end)
    /// only.
    pub const fn trailers(&self) -> Option<&'a HeaderMap> {
        self.trailers
    }

    /// Returns the gRPC status, from the headers of a response without messages, or from the
    /// trailers of any other. `None` if it is not known yet, was not sent, or is not a number.
    pub fn grpc_status(&self) -> Option<u32> {
        self.grpc_status_field()?.to_str().ok()?.parse().ok()
    }

    pub(super) fn grpc_status_field(&self) -> Option<&'a HeaderValue> {
        let fields = [Some(self.headers), self.trailers];
        let mut fields = fields.into_iter().flatten();
        fields.find_map(|fields| fields.get(GRPC_STATUS))
    }

    /// Returns how many bytes of the body were passed on so far, without trailers.
    pub const fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Returns whether the whole body was passed on. `false` if the body failed or was dropped
    /// before its end, and at the head, where that is not known yet.
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns whether this outcome is final: the body has ended, or there is no response.
    pub const fn is_end(&self) -> bool {
        self.is_end
    }

    /// Returns how many units the request holds: its cost.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Returns whether the response is that of a gRPC call.
    pub(super) fn is_grpc(&self) -> bool {
        let given = self.headers.get(CONTENT_TYPE);
        given.is_some_and(|given| has_name(given, "application/grpc"))
    }

    /// Returns whether an inner layer of this crate denied the request.
    pub(super) fn is_denied_within(&self) -> bool {
        self.extensions.get::<DenialReason>().is_some()
    }
}

impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("status", &self.status)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Returns whether a content type has this name: exactly, or before `+` or `;`.
pub(crate) fn has_name(content_type: &HeaderValue, name: &str) -> bool {
    let halves = content_type.as_bytes().split_at_checked(name.len());
    halves.is_some_and(|(start, rest)| {
        let ends = |rest: &[u8]| matches!(rest.first(), None | Some(b';'));
        start.eq_ignore_ascii_case(name.as_bytes())
            && (rest.first() == Some(&b'+') || ends(rest.trim_ascii_start()))
    })
}
