//! The options of each algorithm, by its own builder.

use std::time::Duration;

use super::{
    options::{Built, Setter, build},
    period::Period,
};
use crate::{
    Concurrency, FixedWindow, LeakyBucket, Pause, Penalty, SlidingLog, SlidingWindow, TokenBucket,
    util::text::Words,
};

pub(super) fn token_bucket(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let options = [
        ("burst", Setter::Number(TokenBucket::burst)),
        ("initial", Setter::Number(TokenBucket::initial)),
        ("refill at once", Setter::Flag(TokenBucket::refill_at_once)),
    ];
    let bucket = TokenBucket::new(limit, period);
    build(words, "a token bucket", bucket, &options)
}

pub(super) fn without_refill(words: &mut Words<'_>, burst: u64) -> Built {
    let options = [("initial", Setter::Number(TokenBucket::initial))];
    let bucket = TokenBucket::without_refill(burst);
    build(words, "a bucket without refill", bucket, &options)
}

pub(super) fn leaky_bucket(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let options = [
        ("capacity", Setter::Number(LeakyBucket::capacity)),
        ("queue", Setter::Number(LeakyBucket::queue)),
    ];
    let bucket = LeakyBucket::new(limit, period);
    build(words, "a leaky bucket", bucket, &options)
}

pub(super) fn fixed_window(words: &mut Words<'_>, limit: u64, period: Period) -> Built {
    const CALENDAR: &str = "a fixed window by the calendar";
    const SPREAD: (&str, Setter<FixedWindow>) = ("spread", Setter::Flag(FixedWindow::spread));

    let window = match period {
        Period::Time(time) => {
            let options = [("aligned", Setter::Flag(FixedWindow::aligned)), SPREAD];
            let window = FixedWindow::new(limit, time);
            return build(words, "a fixed window", window, &options);
        }
        Period::Day => FixedWindow::per_calendar_day(limit),
        Period::Week => FixedWindow::per_calendar_week(limit),
        Period::Month => FixedWindow::per_calendar_month(limit),
    };
    build(words, CALENDAR, window, &[SPREAD])
}

pub(super) fn sliding_window(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let window = SlidingWindow::new(limit, period);
    build(words, "a sliding window", window, &[])
}

pub(super) fn sliding_log(words: &mut Words<'_>, limit: u64, period: Duration) -> Built {
    let options = [("max entries", Setter::Number(SlidingLog::max_entries))];
    let log = SlidingLog::new(limit, period);
    build(words, "a sliding log", log, &options)
}

pub(super) fn concurrency(words: &mut Words<'_>, limit: u64) -> Built {
    let options = [("lifetime", Setter::Time(Concurrency::lifetime))];
    let concurrency = Concurrency::new(limit);
    build(words, "a concurrency limit", concurrency, &options)
}

pub(super) fn penalty(words: &mut Words<'_>, strikes: u64) -> Built {
    let options = [
        ("within", Setter::Time(Penalty::within)),
        ("lasting", Setter::Time(Penalty::lasting)),
        ("doubling up to", Setter::Time(Penalty::doubling_up_to)),
        ("forgiven after", Setter::Time(Penalty::forgiven_after)),
        ("prolonging", Setter::Flag(Penalty::prolonging)),
    ];
    build(words, "a penalty", Penalty::after(strikes), &options)
}

pub(super) fn pause(words: &mut Words<'_>) -> Built {
    build(words, "a pause", Pause, &[])
}
