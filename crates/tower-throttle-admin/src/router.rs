//! The routes, and the way of a request:
//!
//! 1. [`guard`] is around all routes, also around 404 and 405. [`admit`] makes the checks, in the
//!    order in which they are written there. [`secure`] adds header fields to all responses, also to
//!    those of panics.
//! 2. A handler of `api::routes()`, `page::routes()` or `login::routes()` runs. It finds in the
//!    request:
//!    - `State<Handle>`;
//!    - `Extension<Who>`: who has access. It is there in all handlers but those of [`OPEN`], where
//!      it may be absent (`Option<Extension<Who>>`): then the page asks for the token;
//!    - `Extension<Base>`: the start of all relative URLs of the page;
//!    - if it is a `POST`, a body that has arrived in full (`axum::body::Bytes`). Below `/api/` it
//!      is `application/json`. Elsewhere it may be a form, too (`body::is_form`).
//! 3. An error is a [`Problem`].
//!
//! Paths are those below the place where the router is nested. A `POST` below `/api/`, except the
//! one to [`LOOK_UP`], is a change: the guards deny it without `allow_changes()`. No path has other methods
//! than `GET` and `POST`.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state, map_response},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, Method};
use tower_http::catch_panic::CatchPanicLayer;
use tower_throttle::RequestHead;

use super::{
    api,
    base::Base,
    body, login, origin, page,
    problem::{Code, Problem},
    shared::{Handle, Shared},
    who::Who,
};

/// The path below `/api/` whose `POST` changes nothing.
const LOOK_UP: &str = "/api/v1/lookup";
/// What a visitor without access can request to log in, and what it can send.
const OPEN: [&str; 5] = ["/", "/admin.css", "/admin.js", "/admin.svg", "/session"];
const OPEN_TO_POST: [&str; 2] = ["/session", "/session-end"];

pub(crate) fn build(shared: Shared) -> Router {
    let shared = Arc::new(shared);
    // The application's closures read requests here that an operator made up, and lack what the
    // application adds to each.
    let panicked = |_| Problem::from(Code::Panicked).into_response();
    Router::new()
        .merge(page::routes())
        .merge(api::routes())
        .merge(login::routes())
        .fallback(|| async { Problem::from(Code::NotFound) })
        .method_not_allowed_fallback(|| async { Problem::from(Code::MethodNotAllowed) })
        .layer(from_fn_with_state(Arc::clone(&shared), guard))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(map_response(secure))
        .with_state(shared)
}

async fn guard(State(shared): State<Handle>, request: Request, next: Next) -> Response {
    match admit(&shared, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Checks a request, in the order in which the checks are written here.
async fn admit(shared: &Shared, request: Request) -> Result<Request, Problem> {
    let (mut parts, mut body) = request.into_parts();
    let head = RequestHead::from(&parts);
    let host = origin::host(&head)?;
    shared.access.check_way(&head, host, &shared.hosts)?;
    origin::check(&head, host)?;
    let (attempts, now_ms) = (&shared.attempts, shared.now_ms());
    let (who, key) = shared.access.visitor(&head, attempts, now_ms).await?;
    attempts.count_call(who.is_some(), key)?;
    Code::NoToken.unless(who.is_some() || is_open(&head))?;
    if head.method() == Method::POST {
        body::check(&head)?;
        Code::ReadOnly.unless(shared.changes || !is_change(&head))?;
        body = Body::from(body::read(body).await?);
    }
    let base = Base::of(&parts);
    parts.extensions.insert(base);
    // The application may have put one there for its own check.
    parts.extensions.remove::<Who>();
    if let Some(who) = who {
        parts.extensions.insert(who);
    }
    Ok(Request::from_parts(parts, body))
}

fn is_open(head: &RequestHead<'_>) -> bool {
    let open: &[&str] = match *head.method() {
        Method::GET | Method::HEAD => &OPEN,
        Method::POST => &OPEN_TO_POST,
        _ => &[],
    };
    open.contains(&head.uri().path())
}

/// Returns whether a `POST` changes something.
fn is_change(head: &RequestHead<'_>) -> bool {
    let path = head.uri().path();
    path.starts_with("/api/") && path != LOOK_UP
}

const HEADERS: [(&str, &str); 7] = [
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Adds the header fields that every response has.
async fn secure(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
