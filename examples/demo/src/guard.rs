//! The senders that may use the switches of the page: a browser on this machine, from the demo's own page.

use axum::{
    Json,
    extract::Request,
    http::{HeaderMap, StatusCode, header::HOST},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::history::peer;

/// The fields by which proxies name their clients. Behind a proxy, each peer is on loopback.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Returns why the request is not from this machine, or `None` if it is.
pub(crate) fn why_elsewhere(request: &Request) -> Option<&'static str> {
    let peer = peer(request.extensions());
    let headers = request.headers();
    if !peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
        return Some("The switches work on the machine of the demo only.");
    }
    if FORWARDED.iter().any(|name| headers.contains_key(*name)) {
        return Some("The switches do not work behind a proxy.");
    }
    // Another site may give its own name this machine's address.
    if !is_local_name(headers) {
        return Some("The switches work at localhost, 127.0.0.1 and [::1] only.");
    }
    None
}

fn is_local_name(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default();
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]"
}

/// Denies what another page may send. A browser adds the field `x-tower-throttle` to a request
/// to another site only after it has asked that site, and the demo never agrees.
pub(crate) async fn only_this_page(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let site = headers.get("sec-fetch-site");
    let problem = if let Some(why) = why_elsewhere(&request) {
        Some(why)
    } else if headers.get("x-tower-throttle").is_none_or(|one| one != "1") {
        Some("The header field `x-tower-throttle: 1` is missing.")
    } else if site.is_some_and(|site| site != "same-origin") {
        Some("The request is from another site.")
    } else {
        None
    };
    match problem {
        Some(detail) => (StatusCode::FORBIDDEN, Json(json!({ "detail": detail }))).into_response(),
        None => next.run(request).await,
    }
}
