//! The routes, and the way of a request:
//!
//! 1. [`guard`] is around all routes, also around 404 and 405. It checks what [`admit`] lists, in
//!    that order, and adds the header fields of [`secure`] to all responses.
//! 2. A handler of `api::routes()` or `page::routes()` runs. It finds in the request:
//!    - `State<Handle>`;
//!    - `Extension<Who>`: who has access. It is always there in handlers below `/api/`. Elsewhere it
//!      may be absent (`Option<Extension<Who>>`): then the page is the form of the login;
//!    - `Extension<Base>`: the start of all relative URLs of the page;
//!    - a body of at most [`MOST_BYTES`] that has arrived in full (`axum::body::Bytes`). Below
//!      `/api/` its content type is `application/json`.
//! 3. An error is a [`Problem`](super::problem::Problem).
//!
//! Paths are those below the place where the router is nested. A `POST` below `/api/`, except the
//! ones in [`READS`], is a change: the guards deny it without `allow_changes()`.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use http::{
    HeaderName, HeaderValue,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        X_FRAME_OPTIONS,
    },
};

use super::{
    api, page,
    problem::{Code, Problem},
    shared::{Base, Handle, Shared},
};
use crate::RequestHead;

/// The paths whose `POST` changes nothing.
const READS: [&str; 1] = ["/api/v1/lookup"];
/// The largest body.
pub(super) const MOST_BYTES: usize = 16 * 1024;

pub(super) fn build(shared: Shared) -> Router {
    let shared = Arc::new(shared);
    Router::new()
        .merge(page::routes())
        .merge(api::routes())
        .fallback(|| async { Problem::new(Code::NotFound) })
        .method_not_allowed_fallback(|| async { Problem::new(Code::MethodNotAllowed) })
        .layer(from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

async fn guard(State(shared): State<Handle>, request: Request, next: Next) -> Response {
    let response = match admit(&shared, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    secure(response)
}

/// Checks a request, in the order in which the checks are written here.
async fn admit(shared: &Shared, mut request: Request) -> Result<Request, Problem> {
    let who = shared.access.admit(&RequestHead::from(&request))?;
    if request.uri().path().starts_with("/api/") && who.is_none() {
        return Err(Problem::new(Code::NoAccess));
    }
    if !shared.changes && is_change(&request) {
        return Err(Problem::new(Code::ReadOnly));
    }
    if let Some(who) = who {
        request.extensions_mut().insert(who);
    }
    request.extensions_mut().insert(Base::default());
    Ok(request)
}

fn is_change(request: &Request) -> bool {
    let path = request.uri().path();
    !request.method().is_safe() && path.starts_with("/api/") && !READS.contains(&path)
}

const HEADERS: [(HeaderName, HeaderValue); 7] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Adds the header fields that every response has.
fn secure(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}
