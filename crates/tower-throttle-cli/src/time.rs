//! Times as operators write and read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use humantime::{format_duration, format_rfc3339_seconds, parse_rfc3339};
use tower_throttle::control::End;

use crate::error::Result;

/// Reads a time from now such as `15 minutes` or `7d`, or a date in UTC.
pub(crate) fn end(text: &str) -> Result<End> {
    if !text.contains('-') {
        return Ok(text.parse()?);
    }
    let time = if text.contains('T') { "" } else { "T00:00:00Z" };
    let at = parse_rfc3339(&format!("{text}{time}"));
    let at = at.map_err(|_| "write a date such as 2026-12-24 or 2026-12-24T08:00:00Z")?;
    Ok(at.into())
}

/// Writes a moment in UTC, such as `2026-12-24T08:00:00Z`.
pub(crate) fn moment(at: SystemTime) -> String {
    format_rfc3339_seconds(at.max(UNIX_EPOCH)).to_string()
}

/// Returns whole milliseconds, rounded up.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Writes milliseconds for people. Those of more than a minute are rounded up to seconds.
pub(crate) fn span(ms: u64) -> String {
    let time = match ms {
        ..60_000 => Duration::from_millis(ms),
        _ => Duration::from_secs(ms.div_ceil(1_000)),
    };
    format_duration(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit_and_more_than_nothing() {
        let is = |text, seconds| end(text).ok() == Some(Duration::from_secs(seconds).into());
        assert!(is("15 minutes", 900) && is("7d", 7 * 86_400));
        for text in ["", "1", "h", "0s", "-1h", "1.5h", "1h30m", "1 year"] {
            assert!(end(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dates_are_read_as_they_are_written() {
        for text in [
            "1970-01-01T00:00:00Z",
            "2000-02-29T23:59:59Z",
            "2024-03-01T00:00:00Z",
            "2026-12-24T08:00:00Z",
            "2100-02-28T00:00:01Z",
            "9999-12-31T23:59:59Z",
        ] {
            let at = parse_rfc3339(text).expect(text);
            assert_eq!((&*moment(at), end(text).ok()), (text, Some(at.into())));
        }
        let christmas = UNIX_EPOCH + Duration::from_secs(1_798_070_400);
        assert_eq!(end("2026-12-24").ok(), Some(christmas.into()));
        for text in [
            "2026-13-01",
            "2026-02-29",
            "2100-02-29",
            "2026-00-10",
            "2026-1-1",
            "1969-12-31",
            "2026-12-24T24:00:00Z",
            "2026-12-24T08:00:00",
            "2026-12-24 08:00:00Z",
            "2026-12",
            "-",
        ] {
            assert!(end(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_short() {
        for (ms, text) in [
            (1_234, "1s 234ms"),
            (60_001, "1m 1s"),
            (3_660_000, "1h 1m"),
            (90_000_000, "1day 1h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}
