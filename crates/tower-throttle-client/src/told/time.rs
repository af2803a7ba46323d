//! Times, as partners write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::{SignedDuration, Timestamp};

use super::{TimeUnit, number::number};

/// Returns how long it is until a time, and zero if it is past. `None` if the text is not a time.
pub(super) fn until(text: &str, unit: TimeUnit, now: SystemTime) -> Option<Duration> {
    if let Some(number) = number(text) {
        let since_1970 = match unit {
            TimeUnit::Seconds => return Some(number.seconds()),
            TimeUnit::Milliseconds => return Some(number.milliseconds()),
            TimeUnit::EpochSeconds => number.seconds(),
            TimeUnit::EpochMilliseconds => number.milliseconds(),
            // The first number is a second of 2001.
            TimeUnit::BySize if number.whole < 1_000_000_000 => return Some(number.seconds()),
            TimeUnit::BySize if number.whole < 1_000_000_000_000 => number.seconds(),
            TimeUnit::BySize => number.milliseconds(),
        };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        return Some(since_1970.saturating_sub(now));
    }
    if text.strip_prefix('-').and_then(number).is_some() {
        return Some(Duration::ZERO);
    }
    if let Some(date) = date(text) {
        return Some(date.duration_since(now).unwrap_or_default());
    }
    let duration = text.parse::<SignedDuration>().ok()?;
    Some(Duration::try_from(duration).unwrap_or_default())
}

/// Reads a date of HTTP or of ISO 8601, with a time zone. `UTC` is one, too.
pub(super) fn date(text: &str) -> Option<SystemTime> {
    let zoned = |zone: &str| {
        let date = text.strip_suffix("UTC")?.trim_end();
        Some(format!("{date}{zone}"))
    };
    let of_http = |text: &str| httpdate::parse_http_date(text).ok();
    let of_iso = |text: &str| SystemTime::try_from(text.parse::<Timestamp>().ok()?).ok();
    of_http(text)
        .or_else(|| of_iso(text))
        .or_else(|| of_http(&zoned(" GMT")?))
        .or_else(|| of_iso(&zoned("Z")?))
}
