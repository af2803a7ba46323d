//! `Retry-After` (RFC 9110, section 10.2.3), and `retry-after-ms`, which OpenAI and Azure send.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};

use super::{seconds, texts};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Returns the longest time that can be read; zero for a date that is past. A zero of milliseconds
/// counts as not said.
pub(super) fn read(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let exact = texts(headers, RETRY_AFTER_MS).filter_map(|text| Some(seconds(text)? / 1_000));
    let exact = exact.filter(|exact| !exact.is_zero());
    exact.max().or_else(|| {
        let of_date = |text| Some(httpdate::parse_http_date(text).ok()?.duration_since(now));
        let read = |text| seconds(text).or_else(|| Some(of_date(text)?.unwrap_or_default()));
        texts(headers, RETRY_AFTER).filter_map(read).max()
    })
}

pub(super) fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}
