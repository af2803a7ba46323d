//! Logging in with the secret, and out again.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use http::{HeaderMap, HeaderValue, StatusCode, request::Parts};
use serde::Deserialize;
use tower_throttle::RequestHead;

use super::{
    attempts::address,
    base::Base,
    body::is_form,
    events, page,
    problem::{Code, Problem},
    shared::Handle,
};

/// The URL that shows the page after both forms, relative to theirs. The page's own URL is unknown
/// here: a proxy may have shown it at another path, with or without a slash.
const PAGE: &str = "./session";

/// Returns `POST /session` and `POST /session-end`. Both are right below the page, so that their
/// cookie is for the page: see [`Bearer`](super::bearer::Bearer).
pub(crate) fn routes() -> Router<Handle> {
    Router::new()
        .route("/session", get(page::show).post(begin))
        .route("/session-end", post(end))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// Exchanges the token for the cookie of a session.
async fn begin(State(shared): State<Handle>, parts: Parts, body: Bytes) -> Response {
    match cookie(&shared, &parts, &body).await {
        Ok(cookie) => done(&parts.headers, cookie),
        Err(problem) if is_form(&parts.headers) => form_again(problem),
        Err(problem) => problem.into_response(),
    }
}

/// Returns the page that asks for the token again, with the status of what went wrong.
fn form_again(problem: Problem) -> Response {
    let page = page::login_page(&Base("./".to_owned()), &problem.detail);
    let (mut head, _) = problem.into_response().into_parts();
    // `Html` sets that of the page.
    head.headers.remove("content-type");
    (head, page).into_response()
}

async fn cookie(shared: &Handle, parts: &Parts, body: &[u8]) -> Result<HeaderValue, Problem> {
    let secret = shared.access.secret().ok_or(Code::NotFound)?;
    let login = match is_form(&parts.headers) {
        true => serde_urlencoded::from_bytes(body).ok(),
        false => serde_json::from_slice(body).ok(),
    };
    // What is wrong with it is not reported, as that could hold a part of the token.
    let Login { token } = login.ok_or(Code::Malformed)?;
    let head = RequestHead::from(parts);
    let compared = shared.attempts.check_token(secret, token.as_bytes(), &head);
    compared.await?;
    events::session_began(address(&head));
    Ok(secret.begin_session(shared.now_ms()))
}

/// Ends a session in this process, and removes its cookie.
async fn end(State(shared): State<Handle>, headers: HeaderMap) -> Result<Response, Problem> {
    let secret = shared.access.secret().ok_or(Code::NotFound)?;
    let cookie = secret.end_session(&headers, shared.now_ms());
    Ok(done(&headers, cookie))
}

/// Shows the page after a form, and nothing otherwise.
fn done(asked: &HeaderMap, cookie: HeaderValue) -> Response {
    let cookie = [("set-cookie", cookie)];
    match is_form(asked) {
        true => (cookie, Redirect::to(PAGE)).into_response(),
        false => (StatusCode::NO_CONTENT, cookie).into_response(),
    }
}
