//! The layer's responses, for handlers that ask a `Limiter`.

use bytes::Bytes;
use http::Response;

use super::{
    denied::Denial,
    headers::{Fields, SetBy},
    respond::respond,
    settings::ResponseSettings,
};
use crate::{Decision, DenialReason, RequestHead};

/// Responds to a request as a layer does, by a decision from a [`Limiter`](crate::Limiter).
///
/// A handler needs it if only the handler knows what to limit, such as the user name of a
/// login form. [`RateLimitLayer::responder`](crate::RateLimitLayer::responder) has the
/// settings of a layer: `headers`, `headers_when`, `retry_after_jitter`, `grpc_denials`
/// and `on_denied`. Without a layer, they come from
/// [`RateLimitLayerBuilder::responder`](crate::RateLimitLayerBuilder::responder), or are
/// the defaults with `Responder::default()`. Cloning is cheap.
///
/// ```
/// use axum::{
///     Router,
///     body::Body,
///     extract::State,
///     http::request::Parts,
///     response::{IntoResponse, Response},
///     routing::post,
/// };
/// use tower::ServiceExt;
/// use tower_throttle::{RequestHead, Limiter, MemoryStore, Responder, TokenBucket};
///
/// #[derive(Clone)]
/// struct App {
///     logins: Limiter,
///     responder: Responder,
/// }
///
/// async fn login(State(app): State<App>, parts: Parts, name: String) -> Result<Response, Response> {
///     let head = RequestHead::from(&parts);
///     let outcome = app.logins.check(name).await;
///     let decision = app.responder.respond(&head, outcome).map_err(|denied| denied.map(Body::from))?;
///     let mut response = "welcome".into_response();
///     app.responder.add_headers(&head, &decision, &mut response);
///     Ok(response)
/// }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let logins = Limiter::new(MemoryStore::new(), TokenBucket::per_minute(1));
/// let app = App { logins, responder: Responder::default() };
/// let app = Router::new().route("/login", post(login)).with_state(app);
/// let ask = || app.clone().oneshot(http::Request::post("/login").body(Body::from("ann")).unwrap());
///
/// let allowed = ask().await.unwrap();
/// assert_eq!(allowed.status(), 200);
/// assert_eq!(allowed.headers()["ratelimit"], r#""1-per-minute";r=0;t=60"#);
/// let denied = ask().await.unwrap();
/// assert_eq!(denied.status(), 429);
/// assert!(denied.headers().contains_key("retry-after"));
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Responder(ResponseSettings);

impl Responder {
    pub(super) const fn new(settings: ResponseSettings) -> Self {
        Self(settings)
    }

    /// Returns what a limiter returned if it is allowed, or else the response to send.
    ///
    /// The response is what a layer would send for this request and outcome: status, body,
    /// `Retry-After`, `RateLimit` fields, [`on_denied`](crate::RateLimitLayerBuilder::on_denied),
    /// and the [`DenialReason`] in its extensions. With
    /// [`decision_in_extensions`](crate::RateLimitLayerBuilder::decision_in_extensions) the
    /// decision is there, too, with the policies of an outer layer. For axum,
    /// map its body: `denied.map(Body::from)`.
    ///
    /// `outcome` is what [`Limiter::check`](crate::Limiter::check), [`acquire`](crate::Limiter::acquire)
    /// or [`reserve`](crate::Limiter::reserve) returns.
    ///
    /// A layer sends two things that a decision does not have. One is the
    /// [partition key](crate::RateLimitLayerBuilder::partition_key_secret) of a request. The other
    /// is `RateLimit-Policy`, if the store failed and the layer [allows](crate::OnStoreFailure::Allow)
    /// the request.
    ///
    /// # Errors
    ///
    /// Returns the response to send if the request is denied.
    #[allow(clippy::result_large_err)] // The handler returns it as its response.
    pub fn respond<D, E>(
        &self,
        head: &RequestHead<'_>,
        outcome: Result<D, E>,
    ) -> Result<D, Response<Bytes>>
    where
        D: AsRef<Decision>,
        E: Into<DenialReason>,
    {
        match outcome {
            Ok(allowed) if allowed.as_ref().is_allowed() => Ok(allowed),
            Ok(denied) => {
                let denial = Denial::from(denied.as_ref());
                Err(respond(denial, &self.0, &self.fields(), head))
            }
            Err(reason) => Err(self.deny(head, reason)),
        }
    }

    /// Returns the response of a layer that denies this request, for a reason that the handler knows:
    /// a [`StoreError`](crate::StoreError), a [`KeyError`](crate::key::KeyError), or a [`DenialReason`].
    pub fn deny(&self, head: &RequestHead<'_>, reason: impl Into<DenialReason>) -> Response<Bytes> {
        respond(reason.into().into(), &self.0, &self.fields(), head)
    }

    /// Adds the `RateLimit` fields of an allowed request to its response. With
    /// [`decision_in_extensions`](crate::RateLimitLayerBuilder::decision_in_extensions) it
    /// puts the decision into the response's extensions, unless an inner layer did.
    pub fn add_headers<B>(
        &self,
        head: &RequestHead<'_>,
        decision: &impl AsRef<Decision>,
        response: &mut Response<B>,
    ) {
        let decision = decision.as_ref();
        let status = response.status();
        let wanted = self.0.headers_when.as_ref();
        if wanted.is_none_or(|wanted| (wanted.0)(status, response.headers())) {
            let fields = self.fields();
            fields.write(decision, response.headers_mut(), SetBy::InnerService);
        }
        if self.0.decision_in_extensions && response.extensions().get::<Decision>().is_none() {
            let decision = decision.within(head.extensions().get());
            response.extensions_mut().insert(decision);
        }
    }

    /// The decision may be of any policies.
    fn fields(&self) -> Fields {
        Fields::new(self.0.format, self.0.shadow_with_headers)
    }
}
