//! What the response of a partner says about further calls.
//!
//! Each value is one that a partner may get wrong. What cannot be read counts as not said.

mod grpc;
mod retry_after;
#[cfg(test)]
mod tests;
mod windows;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header::DATE};

/// Returns how long the partner wants no further calls; `None` if it said nothing of that.
///
/// If the partner refuses the call, its time is, in this order: that of the refusal
/// (`Retry-After`, or gRPC's), the end of the window that is used up, or `default`. If it does not
/// refuse, calls pause until the end of a window that is used up.
pub(crate) fn pause(
    status: StatusCode,
    headers: &HeaderMap,
    default: Duration,
) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && !headers.keys().any(may_tell) {
        return None;
    }
    let now = headers.get(DATE).and_then(retry_after::date);
    let now = now.unwrap_or_else(SystemTime::now);
    let used_up = windows::read(headers, now).into_iter();
    let used_up = used_up.filter(|window| window.remaining == 0 && !window.reset.is_zero());
    let used_up = used_up.map(|window| window.reset).max();
    if !is_refusal(status, headers) {
        return used_up;
    }
    let asked = retry_after(headers, now).filter(|pause| !pause.is_zero());
    Some(asked.or(used_up).unwrap_or(default))
}

/// Returns whether a field may speak of limits. Most responses have none, and are not searched for
/// each name: the rows "calls to a partner" of the benchmark show it.
fn may_tell(name: &HeaderName) -> bool {
    const STARTS: [&str; 5] = [
        "retry-after",
        "ratelimit",
        "x-ratelimit",
        "x-rate-limit",
        "grpc-",
    ];

    STARTS.iter().any(|start| name.as_str().starts_with(start))
}

/// Returns whether a response refuses a call because of a limit, or for a time that it says.
pub(crate) fn is_refusal(status: StatusCode, headers: &HeaderMap) -> bool {
    let says_when = || retry_after(headers, SystemTime::now()).is_some();
    match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        _ if status.is_client_error() || status.is_server_error() => says_when(),
        _ => grpc::is_exhausted(headers) || grpc::is_unavailable(headers) && says_when(),
    }
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    retry_after::read(headers, now).or_else(|| grpc::retry_delay(headers))
}

/// Returns the values of a field that are text.
fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| Some(value.to_str().ok()?.trim()))
}

/// Reads seconds, with or without a fraction; `None` for what is no time.
fn seconds(text: &str) -> Option<Duration> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = text.parse::<f64>().ok().filter(|_| is_plain)?;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
