//! Reads a quota: its algorithm, its limit and its period, and its options by its own builder.

use std::{fmt, ops::Range, time::Duration};

use super::algorithm;
use crate::{
    Algorithm, Concurrency, ConfigError, FixedWindow, LeakyBucket, Pause, Penalty, Quota,
    SlidingLog, SlidingWindow, TokenBucket,
    util::text::{Mistake, Piece, Words, choice, quoted},
};

pub(super) fn quota(text: &str) -> Built {
    let words = &mut Words::new(text);
    let first = words.peek();
    if first.is_end() {
        let reason = "an empty text; write \"10 per second, burst 20\", say";
        return Err(Mistake::new(0..text.len(), reason));
    }
    if !first.is_word() {
        return unnamed(words);
    }
    match algorithm::take(words)? {
        Algorithm::TokenBucket => {
            let limit = units(words, "token bucket")?;
            if words.take("without refill") {
                return without_refill(words, limit);
            }
            per(words, limit, &["per", "without refill"])?;
            let period = time(words, "a token bucket")?;
            token_bucket(words, limit, period)
        }
        Algorithm::LeakyBucket => {
            let (limit, period) = rate(words, "leaky bucket")?;
            let options = [
                ("capacity", Setter::Number(LeakyBucket::capacity)),
                ("queue", Setter::Number(LeakyBucket::queue)),
            ];
            let bucket = LeakyBucket::new(limit, period);
            build(words, "a leaky bucket", bucket, &options)
        }
        Algorithm::FixedWindow => {
            let limit = units(words, "fixed window")?;
            per(words, limit, &["per"])?;
            let (period, _) = Period::take(words)?;
            fixed_window(words, limit, period)
        }
        Algorithm::SlidingWindow => {
            let (limit, period) = rate(words, "sliding window")?;
            let window = SlidingWindow::new(limit, period);
            build(words, "a sliding window", window, &[])
        }
        Algorithm::SlidingLog => {
            let (limit, period) = rate(words, "sliding log")?;
            let options = [("max entries", Setter::Number(SlidingLog::max_entries))];
            let log = SlidingLog::new(limit, period);
            build(words, "a sliding log", log, &options)
        }
        Algorithm::Concurrency => {
            let limit = units(words, "concurrency")?;
            expect(words, "at once", limit, &["at once"])?;
            concurrency(words, limit)
        }
        Algorithm::Penalty => {
            expect(words, "after", "penalty", &["after"])?;
            let strikes = words.number()?;
            if !words.take("strike") {
                expect(words, "strikes", strikes, &["strikes"])?;
            }
            let options = [
                ("within", Setter::Time(Penalty::within)),
                ("lasting", Setter::Time(Penalty::lasting)),
                ("doubling up to", Setter::Time(Penalty::doubling_up_to)),
                ("forgiven after", Setter::Time(Penalty::forgiven_after)),
                ("prolonging", Setter::Flag(Penalty::prolonging)),
            ];
            build(words, "a penalty", Penalty::after(strikes), &options)
        }
        Algorithm::Pause => build(words, "a pause", Pause, &[]),
    }
}

/// Reads a quota that starts with a number.
fn unnamed(words: &mut Words<'_>) -> Built {
    let limit = count(words)?;
    if words.take("at once") {
        return concurrency(words, limit);
    }
    if words.take("without refill") {
        return without_refill(words, limit);
    }
    per(words, limit, &["per", "at once", "without refill"])?;
    match Period::take(words)? {
        (Period::Time(period), _) => token_bucket(words, limit, period),
        (calendar, _) => fixed_window(words, limit, calendar),
    }
}

fn token_bucket(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let options = [
        ("burst", Setter::Number(TokenBucket::burst)),
        ("initial", Setter::Number(TokenBucket::initial)),
        ("refill at once", Setter::Flag(TokenBucket::refill_at_once)),
    ];
    let bucket = TokenBucket::new(limit, period);
    build(words, "a token bucket", bucket, &options)
}

fn without_refill(words: &mut Words<'_>, burst: u64) -> Built {
    let options = [("initial", Setter::Number(TokenBucket::initial))];
    let bucket = TokenBucket::without_refill(burst);
    build(words, "a bucket without refill", bucket, &options)
}

fn fixed_window(words: &mut Words<'_>, limit: u64, period: Period) -> Built {
    const CALENDAR: &str = "a fixed window by the calendar";
    const OFFSET: (&str, Setter<FixedWindow>) = (
        "utc offset",
        Setter::UtcOffset(FixedWindow::utc_offset_minutes),
    );
    const SPREAD: (&str, Setter<FixedWindow>) = ("spread", Setter::Flag(FixedWindow::spread));

    let window = match period {
        Period::Time(time) => {
            let aligned = Setter::Flag(FixedWindow::aligned);
            let options = [("aligned", aligned), OFFSET, SPREAD];
            let window = FixedWindow::new(limit, time);
            return build(words, "a fixed window", window, &options);
        }
        Period::Day => FixedWindow::per_calendar_day(limit),
        Period::Week => FixedWindow::per_calendar_week(limit),
        Period::Month => FixedWindow::per_calendar_month(limit),
    };
    build(words, CALENDAR, window, &[OFFSET, SPREAD])
}

fn concurrency(words: &mut Words<'_>, limit: u64) -> Built {
    let options = [("lifetime", Setter::Time(Concurrency::lifetime))];
    let concurrency = Concurrency::new(limit);
    build(words, "a concurrency limit", concurrency, &options)
}

/// Takes `of`, and the number of units.
fn units(words: &mut Words<'_>, algorithm: &str) -> Result<u64, Mistake> {
    expect(words, "of", algorithm, &["of"])?;
    count(words)
}

/// Takes a number of units. All count requests, so the word may follow.
fn count(words: &mut Words<'_>) -> Result<u64, Mistake> {
    let number = words.number()?;
    if !words.take("requests") {
        words.take("request");
    }
    Ok(number)
}

/// Takes `per`, or the slash that other limiters write for it. `known` are all that may follow
/// `limit`, for the message.
fn per(words: &mut Words<'_>, limit: u64, known: &[&str]) -> Result<(), Mistake> {
    match words.take("/") {
        true => Ok(()),
        false => expect(words, "per", limit, known),
    }
}

/// Takes `of`, a number of units, `per` and a time.
fn rate(words: &mut Words<'_>, algorithm: &str) -> Result<(u64, Duration), Mistake> {
    let limit = units(words, algorithm)?;
    per(words, limit, &["per"])?;
    Ok((limit, time(words, &format!("a {algorithm}"))?))
}

/// Takes a period that is not by the calendar. `whose` is "a leaky bucket", for example.
fn time(words: &mut Words<'_>, whose: &str) -> Result<Duration, Mistake> {
    let (period, at) = Period::take(words)?;
    period.time(at, whose)
}

/// Takes these words. `known` are all that may follow `before`, for the message.
fn expect(
    words: &mut Words<'_>,
    expected: &str,
    before: impl fmt::Display,
    known: &[&str],
) -> Result<(), Mistake> {
    if words.take(expected) {
        return Ok(());
    }
    let mut ahead = *words;
    let piece = ahead.next_piece();
    let reason = if piece.is(",") && ahead.peek().is_number() {
        format!("a comma follows \"{before}\"; write large numbers without commas, as in \"1_000\"")
    } else {
        format!("{piece} follows \"{before}\"{}", choice(piece.text, known))
    };
    Err(Mistake::new(piece.range(), reason))
}

/// The quota that a builder made of a text, or what is wrong with the text.
pub(super) type Built = Result<Result<Quota, ConfigError>, Mistake>;

/// How a text sets an option of a builder.
pub(super) enum Setter<B> {
    Flag(fn(B) -> B),
    Number(fn(B, u64) -> B),
    Time(fn(B, Duration) -> B),
    /// In minutes.
    UtcOffset(fn(B, i32) -> B),
}

/// Takes all options, up to the end of the text, and builds the quota. `whose` is "a token bucket",
/// for example.
pub(super) fn build<B>(
    words: &mut Words<'_>,
    whose: &str,
    mut builder: B,
    allowed: &[(&str, Setter<B>)],
) -> Built
where
    Quota: TryFrom<B, Error = ConfigError>,
{
    let mut set: Vec<&str> = Vec::new();
    while !words.peek().is_end() {
        let comma = words.peek();
        let has_comma = words.take(",");
        let first = words.peek();
        if first.is_end() {
            let reason = "nothing follows the last comma; drop it";
            return Err(Mistake::new(comma.range(), reason));
        }
        let Some((name, setter)) = allowed.iter().find(|(name, _)| words.take(name)) else {
            let names: Vec<_> = allowed.iter().map(|(known, _)| *known).collect();
            return Err(unknown(words, whose, &names, has_comma));
        };
        // A bucket has one size.
        let excludes = |other: &&&str| {
            *other == name
                || matches!(
                    (**other, *name),
                    ("capacity", "queue") | ("queue", "capacity")
                )
        };
        if let Some(other) = set.iter().find(excludes) {
            let reason = match other == name {
                true => format!("{name:?} is set twice; drop one"),
                false => format!("{name:?} beside {other:?}; drop one"),
            };
            return Err(Mistake::new(first.range(), reason));
        }
        builder = match setter {
            Setter::Flag(set) => set(builder),
            Setter::Number(set) => set(builder, words.number()?),
            Setter::Time(set) => set(builder, words.duration()?),
            Setter::UtcOffset(set) => set(builder, utc_offset(words)?),
        };
        set.push(name);
    }
    Ok(builder.try_into())
}

/// Takes an offset from UTC, such as `+02:00`, and returns its minutes.
fn utc_offset(words: &mut Words<'_>) -> Result<i32, Mistake> {
    let start = words.peek().range().start;
    let pieces = [(); 4].map(|()| words.next_piece());
    let [sign, hours, colon, minutes] = pieces;
    let two_digits = |piece: Piece<'_>| match piece.text.as_bytes() {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Some(10 * i32::from(tens - b'0') + i32::from(ones - b'0'))
        }
        _ => None,
    };
    let parts = (two_digits(hours), two_digits(minutes));
    match parts {
        (Some(hours), Some(minutes @ 0..60)) if colon.is(":") => match sign.text {
            "+" => return Ok(60 * hours + minutes),
            "-" => return Ok(-(60 * hours + minutes)),
            _ => {}
        },
        _ => {}
    }
    let end = pieces
        .iter()
        .take_while(|piece| !piece.is_end() && !piece.is(","));
    let at = start..end.last().map_or(start, |piece| piece.range().end);
    let reason =
        "the offset from UTC is a sign, hours and minutes; write \"+02:00\" or \"-05:00\", say";
    Err(Mistake::new(at, reason))
}

/// Returns what is wrong with an option that is not allowed. `has_comma`: one is before it.
fn unknown(words: &mut Words<'_>, whose: &str, allowed: &[&str], has_comma: bool) -> Mistake {
    let first = words.peek();
    let (name, at) = words.take_words(&[]);
    let reason = if first.is_number() && has_comma {
        format!("{first} is no option; write large numbers without commas, as in \"1_000\"")
    } else if name.is_empty() {
        format!("{first} is no option; drop it")
    } else {
        let (name, proposal) = (quoted(&name), choice(&name, allowed));
        format!("{whose} has no option {name}{proposal}")
    };
    Mistake::new(at, reason)
}

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
