//! Times as operators write and read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tower_throttle::{control::End, parse_duration};

/// Reads a time such as `90s`, `15 minutes` or `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("0 is no time; write a longer one".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a time from now, or a date in UTC.
pub(crate) fn until(text: &str) -> Result<End, String> {
    if !text.contains('-') {
        return duration(text).map(End::from);
    }
    let at = date(text).ok_or("write a date such as 2026-12-24 or 2026-12-24T08:00:00Z")?;
    Ok(at.into())
}

fn date(text: &str) -> Option<SystemTime> {
    let time = if text.contains('T') { "" } else { "T00:00:00Z" };
    humantime::parse_rfc3339(&format!("{text}{time}")).ok()
}

/// Writes a moment in UTC, such as `2026-12-24T08:00:00Z`.
pub(crate) fn moment(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at.max(UNIX_EPOCH)).to_string()
}

/// Writes a time for people, in its two largest units.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (1.., ..) => format!("{days} d {hours} h"),
        (_, 1.., _) => format!("{hours} h {minutes} min"),
        (.., 1..) => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{:.3} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit_and_more_than_nothing() {
        assert_eq!(duration("15 minutes"), Ok(Duration::from_secs(900)));
        assert_eq!(until("7d"), Ok(Duration::from_secs(7 * 86_400).into()));
        for text in ["", "1", "h", "0s", "-1h", "1.5h", "1h30m", "1 year"] {
            assert!(duration(text).is_err(), "{text}");
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
            let at = date(text).expect(text);
            assert_eq!((moment(at).as_str(), until(text)), (text, Ok(at.into())));
        }
        assert_eq!(until("2026-12-24"), until("2026-12-24T00:00:00Z"));
        let christmas = UNIX_EPOCH + Duration::from_secs(1_798_070_400);
        assert_eq!(until("2026-12-24"), Ok(christmas.into()));
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
            assert!(until(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(Duration::from_millis(1_234)), "1.234 s");
        assert_eq!(span(Duration::from_secs(61)), "1 min 1 s");
        assert_eq!(span(Duration::from_secs(3_660)), "1 h 1 min");
        assert_eq!(span(Duration::from_secs(90_000)), "1 d 1 h");
    }
}
