//! Times as text: `50ms`, `30 s`, `5 minutes`.

use std::time::Duration;

use super::{
    Mistake,
    suggest::choice,
    words::{Piece, Words},
};

/// A unit of time with all its spellings.
struct Unit {
    nanos: u64,
    name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
}

const SECOND: u64 = 1_000_000_000;

/// The longest first.
#[rustfmt::skip]
const UNITS: [Unit; 8] = [
    Unit { nanos: 7 * 86_400 * SECOND, name: "week", plural: "weeks", short: &["w"] },
    Unit { nanos: 86_400 * SECOND, name: "day", plural: "days", short: &["d"] },
    Unit { nanos: 3_600 * SECOND, name: "hour", plural: "hours", short: &["h"] },
    Unit { nanos: 60 * SECOND, name: "minute", plural: "minutes", short: &["min", "m"] },
    Unit { nanos: SECOND, name: "second", plural: "seconds", short: &["sec", "s"] },
    Unit { nanos: 1_000_000, name: "millisecond", plural: "milliseconds", short: &["ms"] },
    Unit { nanos: 1_000, name: "microsecond", plural: "microseconds", short: &["us", "µs", "μs"] },
    Unit { nanos: 1, name: "nanosecond", plural: "nanoseconds", short: &["ns"] },
];

const VARYING: [&str; 4] = ["month", "months", "year", "years"];

impl Unit {
    fn is_spelled(&self, piece: &Piece<'_>) -> bool {
        piece.is(self.name) || piece.is(self.plural) || self.short.iter().any(|it| piece.is(it))
    }
}

/// Reads a text that is a time and nothing else: a whole number and a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, Mistake> {
    let mut words = Words::new(text);
    let time = words.duration()?;
    words.end()?;
    Ok(time)
}

impl Words<'_> {
    /// Takes a whole number and a unit.
    pub(crate) fn duration(&mut self) -> Result<Duration, Mistake> {
        let number = self.peek();
        let count = self.number()?;
        if self.peek().is_end() {
            let reason = format!("{number} has no unit; write \"{count} seconds\", say");
            return Err(Mistake::new(number.range(), reason));
        }
        self.times(count, number.range().start)
    }

    /// Takes a unit, and returns `count` times that unit. `start` is where the count starts in the
    /// text.
    pub(crate) fn times(&mut self, count: u64, start: usize) -> Result<Duration, Mistake> {
        let piece = self.next_piece();
        let Some(unit) = UNITS.iter().find(|unit| unit.is_spelled(&piece)) else {
            let reason = if VARYING.iter().any(|unit| piece.is(unit)) {
                format!("{piece} has no fixed length; use days")
            } else {
                let names = UNITS.map(|unit| unit.name);
                let proposal = choice(piece.text, &names);
                format!("no unit {piece}{proposal}")
            };
            return Err(Mistake::new(piece.range(), reason));
        };
        let nanos = u128::from(count) * u128::from(unit.nanos);
        let second = u128::from(SECOND);
        match (u64::try_from(nanos / second), u32::try_from(nanos % second)) {
            (Ok(seconds), Ok(nanos)) => Ok(Duration::new(seconds, nanos)),
            _ => {
                let at = start..piece.range().end;
                let reason = format!("{count} {} are too long; use a shorter time", piece.text);
                Err(Mistake::new(at, reason))
            }
        }
    }
}

/// Returns a time as text, in the longest unit that divides it: days, but no weeks.
pub(crate) fn duration_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    let mut up_to_days = UNITS.iter().filter(|unit| unit.name != "week");
    let whole = up_to_days.find(|unit| nanos > 0 && nanos % u128::from(unit.nanos) == 0);
    match whole.map(|unit| (nanos / u128::from(unit.nanos), unit)) {
        Some((1, unit)) => format!("1 {}", unit.name),
        Some((count, unit)) => format!("{count} {}", unit.plural),
        None => "0 seconds".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit_in_any_spelling() {
        for (text, time, shown) in [
            ("50ms", Duration::from_millis(50), "50 milliseconds"),
            ("30 s", Duration::from_secs(30), "30 seconds"),
            ("5 minutes", Duration::from_secs(300), "5 minutes"),
            ("1 hour", Duration::from_secs(3_600), "1 hour"),
            ("60 min", Duration::from_secs(3_600), "1 hour"),
            ("90m", Duration::from_secs(5_400), "90 minutes"),
            (" 1_000\tMS ", Duration::from_secs(1), "1 second"),
            ("2 Weeks", Duration::from_secs(14 * 86_400), "14 days"),
            ("24h", Duration::from_secs(86_400), "1 day"),
            ("1500us", Duration::from_micros(1_500), "1500 microseconds"),
            ("7µs", Duration::from_micros(7), "7 microseconds"),
            ("1 ns", Duration::from_nanos(1), "1 nanosecond"),
            ("0 hours", Duration::ZERO, "0 seconds"),
            (
                "18446744073709551615 s",
                Duration::from_secs(u64::MAX),
                "18446744073709551615 seconds",
            ),
        ] {
            assert_eq!(duration(text), Ok(time), "{text}");
            assert_eq!(duration_text(time), shown, "{text}");
            assert_eq!(duration(shown), Ok(time), "{shown}");
        }
    }

    #[test]
    fn a_text_that_is_more_or_less_than_a_time_is_an_error_at_its_wrong_word() {
        for (text, at, reason) in [
            ("", 0..0, "a number is missing at the end; write one"),
            ("50", 0..2, "\"50\" has no unit; write \"50 seconds\", say"),
            ("1h 30m", 3..5, "\"30\" is too much; drop it"),
        ] {
            assert_eq!(duration(text), Err(Mistake::new(at, reason)), "{text}");
        }
    }
}
