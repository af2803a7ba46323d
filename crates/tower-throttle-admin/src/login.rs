//! Logging in with the secret, and out again.

use axum::{
    Form, Router,
    body::{Body, Bytes},
    extract::{FromRequest, Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_TYPE, LOCATION, SET_COOKIE},
    request::Parts,
};
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
const PAGE: HeaderValue = HeaderValue::from_static("./session");

/// Returns `POST /session` and `POST /session-end`. Both are right below the page, so that their
/// cookie is for the page: see [`Sessions`].
pub(crate) fn routes() -> Router<Handle> {
    Router::new()
        .route("/session", get(page::show).post(begin))
        .route("/session-end", post(end))
}

/// Returns the page that asks for the token again, with the status of what went wrong.
fn form_again(base: &Base, problem: Problem) -> Response {
    let page = page::login_page(base, problem.message());
    let mut response = problem.into_response();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, html);
    *response.body_mut() = Body::from(page);
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// Exchanges the token for the cookie of a session.
async fn begin(State(shared): State<Handle>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let is_form = is_form(&parts.headers);
    match cookie(&shared, &parts, body).await {
        Ok(cookie) => done(&parts.headers, cookie),
        Err(problem) if is_form => form_again(&Base("./".to_owned()), problem),
        Err(problem) => problem.into_response(),
    }
}

async fn cookie(shared: &Handle, parts: &Parts, body: Body) -> Result<HeaderValue, Problem> {
    let secret = shared.access.secret();
    let secret = secret.ok_or_else(|| Problem::new(Code::NotFound))?;
    let request = Request::from_parts(parts.clone(), body);
    // What is wrong with it is not reported, as that could hold a part of the token.
    let malformed = || Problem::new(Code::Malformed);
    let Login { token } = match is_form(&parts.headers) {
        true => {
            Form::from_request(request, &())
                .await
                .map_err(|_| malformed())?
                .0
        }
        false => {
            let body = Bytes::from_request(request, &()).await;
            serde_json::from_slice(&body.map_err(|_| malformed())?).map_err(|_| malformed())?
        }
    };
    let head = RequestHead::from(parts);
    let attempts = &shared.attempts;
    attempts
        .check_token(secret, token.as_bytes(), &head)
        .await?;
    events::session_began(address(&head));
    Ok(secret.sessions.begin(shared.now_ms()))
}

/// Ends a session in this process, and removes its cookie.
async fn end(State(shared): State<Handle>, headers: HeaderMap) -> Result<Response, Problem> {
    let secret = shared.access.secret();
    let secret = secret.ok_or_else(|| Problem::new(Code::NotFound))?;
    Ok(done(
        &headers,
        secret.sessions.end(&headers, shared.now_ms()),
    ))
}

/// Shows the page after a form, and nothing otherwise.
fn done(asked: &HeaderMap, cookie: HeaderValue) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(SET_COOKIE, cookie);
    if !is_form(asked) {
        return (StatusCode::NO_CONTENT, headers).into_response();
    }
    headers.insert(LOCATION, PAGE);
    (StatusCode::SEE_OTHER, headers).into_response()
}
