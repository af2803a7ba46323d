//! Reads the options of a quota, and builds it.

use std::time::Duration;

use super::{
    options::{Options, Takes},
    period::Period,
};
use crate::{
    Concurrency, ConfigError, FixedWindow, LeakyBucket, Pause, Penalty, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
    util::text::{Mistake, Words},
};

/// What a builder made of a text, or what is wrong with the text.
pub(super) type Built = Result<Result<Quota, ConfigError>, Mistake>;

pub(super) fn token_bucket(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let options = Options::default().take(
        words,
        "a token bucket",
        &[
            ("burst", Takes::Number),
            ("initial", Takes::Number),
            ("refill at once", Takes::Nothing),
        ],
    )?;
    let mut bucket = TokenBucket::new(limit, period);
    if let Some(burst) = options.number("burst") {
        bucket = bucket.burst(burst);
    }
    if let Some(initial) = options.number("initial") {
        bucket = bucket.initial(initial);
    }
    if options.place("refill at once").is_some() {
        bucket = bucket.refill_at_once();
    }
    Ok(bucket.try_into())
}

pub(super) fn without_refill(words: &mut Words<'_>, burst: u64) -> Built {
    let allowed = &[("initial", Takes::Number)];
    let options = Options::default().take(words, "a bucket without refill", allowed)?;
    let bucket = TokenBucket::without_refill(burst);
    Ok(match options.number("initial") {
        Some(initial) => bucket.initial(initial).try_into(),
        None => bucket.try_into(),
    })
}

pub(super) fn leaky_bucket(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let allowed = &[("capacity", Takes::Number), ("queue", Takes::Number)];
    let options = Options::default().take(words, "a leaky bucket", allowed)?;
    let bucket = LeakyBucket::new(limit, period);
    Ok(
        match (options.number("capacity"), options.number("queue")) {
            (Some(_), Some(_)) => {
                let at = options.place("queue").unwrap_or_default();
                let reason = "\"queue\" beside \"capacity\"; drop one";
                return Err(Mistake::new(at, reason));
            }
            (Some(units), None) => bucket.capacity(units).try_into(),
            (None, Some(units)) => bucket.queue(units).try_into(),
            (None, None) => bucket.try_into(),
        },
    )
}

pub(super) fn fixed_window(words: &mut Words<'_>, limit: u64, period: Period) -> Built {
    const SPREAD: (&str, Takes) = ("spread", Takes::Nothing);

    let (whose, allowed): (_, &[_]) = match period {
        Period::Time(_) => ("a fixed window", &[("aligned", Takes::Nothing), SPREAD]),
        _ => ("a fixed window by the calendar", &[SPREAD]),
    };
    let options = Options::default().take(words, whose, allowed)?;
    let mut window = match period {
        Period::Time(time) => FixedWindow::new(limit, time),
        Period::Day => FixedWindow::per_calendar_day(limit),
        Period::Week => FixedWindow::per_calendar_week(limit),
        Period::Month => FixedWindow::per_calendar_month(limit),
    };
    if options.place("aligned").is_some() {
        window = window.aligned();
    }
    if options.place("spread").is_some() {
        window = window.spread();
    }
    Ok(window.try_into())
}

pub(super) fn sliding_window(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    Options::default().take(words, "a sliding window", &[])?;
    Ok(SlidingWindow::new(limit, period).try_into())
}

pub(super) fn sliding_log(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let allowed = &[("max entries", Takes::Number)];
    let options = Options::default().take(words, "a sliding log", allowed)?;
    let log = SlidingLog::new(limit, period);
    Ok(match options.number("max entries") {
        Some(entries) => log.max_entries(entries).try_into(),
        None => log.try_into(),
    })
}

pub(super) fn concurrency(words: &mut Words<'_>, limit: u64) -> Built {
    let allowed = &[("lifetime", Takes::Time)];
    let options = Options::default().take(words, "a concurrency limit", allowed)?;
    let concurrency = Concurrency::new(limit);
    Ok(match options.time("lifetime") {
        Some(lifetime) => concurrency.lifetime(lifetime).try_into(),
        None => concurrency.try_into(),
    })
}

pub(super) fn penalty(words: &mut Words<'_>, strikes: u64) -> Built {
    const WHOSE: &str = "a penalty";
    const ALLOWED: &[(&str, Takes)] = &[
        ("within", Takes::Time),
        ("lasting", Takes::Time),
        ("doubling up to", Takes::Time),
        ("forgiven after", Takes::Time),
        ("prolonging", Takes::Nothing),
    ];

    let mut options = Options::default();
    // It reads aloud without a comma: "after 20 strikes within 10 minutes".
    if words.peek().is("within") {
        options.take_one(words, WHOSE, ALLOWED)?;
    }
    let options = options.take(words, WHOSE, ALLOWED)?;
    let mut penalty = Penalty::after(strikes);
    if let Some(window) = options.time("within") {
        penalty = penalty.within(window);
    }
    if let Some(ban) = options.time("lasting") {
        penalty = penalty.lasting(ban);
    }
    if let Some(longest) = options.time("doubling up to") {
        penalty = penalty.doubling_up_to(longest);
    }
    if let Some(peace) = options.time("forgiven after") {
        penalty = penalty.forgiven_after(peace);
    }
    if options.place("prolonging").is_some() {
        penalty = penalty.prolonging();
    }
    Ok(penalty.try_into())
}

pub(super) fn pause(words: &mut Words<'_>) -> Built {
    Options::default().take(words, "a pause", &[])?;
    Ok(Pause.try_into())
}
