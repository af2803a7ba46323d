//! Numbers, as partners write them.

use std::time::Duration;

/// A number that is not negative, with its fraction rounded up to billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// The largest value stands for all that are larger.
    pub(super) whole: u64,
    billionths: u64,
}

/// Reads digits with or without a fraction. `None` for everything else, such as signs and exponents.
pub(super) fn number(text: &str) -> Option<Number> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = whole.bytes().chain(fraction.bytes()).peekable();
    digits.peek()?;
    if !digits.all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let billionths = format!("{:0<9.9}", fraction).parse::<u64>().ok()?;
    let is_more = fraction.bytes().skip(9).any(|digit| digit != b'0');
    Some(Number {
        whole: match whole {
            "" => 0,
            whole => whole.parse().unwrap_or(u64::MAX),
        },
        billionths: billionths + u64::from(is_more),
    })
}

impl Number {
    /// Returns so many seconds, rounded up.
    pub(super) fn seconds(self) -> Duration {
        let fraction = Duration::from_nanos(self.billionths);
        Duration::from_secs(self.whole).saturating_add(fraction)
    }

    /// Returns so many milliseconds, rounded up.
    pub(super) fn milliseconds(self) -> Duration {
        let fraction = Duration::from_nanos(self.billionths.div_ceil(1_000));
        Duration::from_millis(self.whole).saturating_add(fraction)
    }
}
