//! The period of a rate: what follows `per`.

use std::{ops::Range, time::Duration};

use crate::util::text::{Mistake, Words, choice};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    Time(Duration),
    /// This and the others start by the calendar, which only a fixed window has.
    Day,
    Week,
    Month,
}

impl Period {
    /// Takes a period, and returns where it is.
    pub(super) fn take(words: &mut Words<'_>) -> Result<(Self, Range<usize>), Mistake> {
        let first = words.peek();
        let start = first.range().start;
        if words.take("calendar") {
            let unit = words.next_piece();
            let calendar = match unit.text.to_lowercase().as_str() {
                "day" => Self::Day,
                "week" => Self::Week,
                "month" => Self::Month,
                _ => {
                    let proposal = choice(unit.text, &["day", "week", "month"]);
                    let reason = format!("{unit} follows \"calendar\"{proposal}");
                    return Err(Mistake::new(unit.range(), reason));
                }
            };
            return Ok((calendar, start..unit.range().end));
        }
        let count = match first.is_number() {
            true => words.number()?,
            false => 1,
        };
        let unit = words.peek();
        let at = start..unit.range().end;
        if unit.is_end() {
            let reason = "the period has no unit; write \"per second\" or \"per 5 minutes\", say";
            return Err(Mistake::new(at, reason));
        }
        if unit.is("month") || (unit.is("months") && first.is_number()) {
            if count != 1 {
                let reason =
                    "a month of the calendar has no multiples; write \"per month\", or count days";
                return Err(Mistake::new(at, reason));
            }
            words.next_piece();
            return Ok((Self::Month, at));
        }
        Ok((Self::Time(words.times(count, start)?), at))
    }

    /// Returns the time, for a quota that has no calendar. `whose` is "a leaky bucket", for
    /// example.
    pub(super) fn time(self, at: Range<usize>, whose: &str) -> Result<Duration, Mistake> {
        let (name, days) = match self {
            Self::Time(time) => return Ok(time),
            Self::Day => ("day", "1 day"),
            Self::Week => ("week", "7 days"),
            Self::Month => ("month", "30 days"),
        };
        let reason =
            format!("{whose} has no calendar {name}; write \"per {days}\", or use a fixed window");
        Err(Mistake::new(at, reason))
    }
}
