//! Reads the start of a quota: its algorithm, its limit and its period.

use std::{fmt, time::Duration};

use super::{
    algorithm,
    build::{
        concurrency, fixed_window, leaky_bucket, pause, penalty, sliding_log, sliding_window,
        token_bucket, without_refill,
    },
    options::Built,
    period::Period,
};
use crate::{
    Algorithm,
    util::text::{Mistake, Words, choice},
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
            expect(words, "per", limit, &["per", "without refill"])?;
            let period = time(words, "a token bucket")?;
            token_bucket(words, limit, period)
        }
        Algorithm::LeakyBucket => {
            let (limit, period) = rate(words, "leaky bucket")?;
            leaky_bucket(words, limit, period)
        }
        Algorithm::FixedWindow => {
            let limit = units(words, "fixed window")?;
            expect(words, "per", limit, &["per"])?;
            let (period, _) = Period::take(words)?;
            fixed_window(words, limit, period)
        }
        Algorithm::SlidingWindow => {
            let (limit, period) = rate(words, "sliding window")?;
            sliding_window(words, limit, period)
        }
        Algorithm::SlidingLog => {
            let (limit, period) = rate(words, "sliding log")?;
            sliding_log(words, limit, period)
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
            penalty(words, strikes)
        }
        Algorithm::Pause => pause(words),
    }
}

/// Reads a quota that starts with a number.
fn unnamed(words: &mut Words<'_>) -> Built {
    let limit = words.number()?;
    if words.take("at once") {
        return concurrency(words, limit);
    }
    if words.take("without refill") {
        return without_refill(words, limit);
    }
    expect(words, "per", limit, &["per", "at once", "without refill"])?;
    match Period::take(words)? {
        (Period::Time(period), _) => token_bucket(words, limit, period),
        (calendar, _) => fixed_window(words, limit, calendar),
    }
}

/// Takes `of`, and the number of units.
fn units(words: &mut Words<'_>, algorithm: &str) -> Result<u64, Mistake> {
    expect(words, "of", algorithm, &["of"])?;
    words.number()
}

/// Takes `of`, a number of units, `per` and a time.
fn rate(words: &mut Words<'_>, algorithm: &str) -> Result<(u64, Duration), Mistake> {
    let limit = units(words, algorithm)?;
    expect(words, "per", limit, &["per"])?;
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
