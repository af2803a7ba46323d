//! One text for each quota.

use tower_throttle::Algorithm;

use super::UNITS;
use crate::support::prelude::*;

/// What may be written, `=>`, and what such a quota writes. A text alone writes itself.
const TEXTS: &str = "\
10 per second
10 per minute
10 per week => 10 per 7 days
1 per 120 seconds => 1 per 2 minutes
1 per 250 milliseconds
1 per 1000 us => 1 per millisecond
1 per 1001 nanoseconds
10 per second, burst 20
10 per second, burst 10 => 10 per second
10 per second, burst 20, initial 5
0 per second
10 per second, refill at once
10 per 5 minutes, initial 5, refill at once
5 without refill
leaky bucket of 10 per second
leaky bucket of 10 per second, capacity 10 => leaky bucket of 10 per second
leaky bucket of 10 per second, capacity 20
leaky bucket of 10 per second, queue 20
leaky bucket of 10 per second, queue 0
fixed window of 100 per hour
fixed window of 100 per hour, aligned
fixed window of 100 per hour, aligned, spread
fixed window of 5 per day, aligned => fixed window of 5 per calendar day
fixed window of 5 per day, aligned, utc offset +02:00 => fixed window of 5 per calendar day, utc offset +02:00
5 per month, utc offset -05:00, spread => fixed window of 5 per calendar month, utc offset -05:00, spread
fixed window of 5 per calendar week, utc offset +05:45
fixed window of 5 per hour, aligned, utc offset -00:30
fixed window of 5 per calendar day, utc offset +00:00 => fixed window of 5 per calendar day
fixed window of 5 per calendar day
fixed window of 5 per day, aligned, utc offset +02:00 => fixed window of 5 per calendar day, utc offset +02:00
5 per month, utc offset -05:00, spread => fixed window of 5 per calendar month, utc offset -05:00, spread
fixed window of 5 per calendar week, utc offset +05:45
fixed window of 5 per hour, aligned, utc offset -00:30
fixed window of 5 per calendar day, utc offset +00:00 => fixed window of 5 per calendar day
fixed window of 5 per calendar week
fixed window of 5 per 7 days, aligned
fixed window of 5 per calendar month, spread
10/minute => 10 per minute
100/day => 100 per day
10 / 5 minutes => 10 per 5 minutes
5/month => fixed window of 5 per calendar month
10 requests per minute => 10 per minute
1 Request / s => 1 per second
20 requests at once => 20 at once
token bucket of 10 requests per second => 10 per second
sliding window of 100 requests/hour => sliding window of 100 per hour
fixed window of 5/calendar week spread => fixed window of 5 per calendar week, spread
5 per second burst 5 => 5 per second
5 per second burst 7 initial 3 => 5 per second, burst 7, initial 3
penalty after 20 strikes within 5 minutes lasting 1 minute => penalty after 20 strikes within 5 minutes, lasting 1 minute
5 per month => fixed window of 5 per calendar month
5 per calendar month => fixed window of 5 per calendar month
fixed window of 5 per 1 month => fixed window of 5 per calendar month
token bucket of 10 per second => 10 per second
token bucket of 5 without refill => 5 without refill
5 per 30 days
sliding window of 100 per minute
sliding log of 10000 per hour
sliding log of 10 per hour, max entries 10 => sliding log of 10 per hour
sliding log of 10001 per hour, max entries 20000 => sliding log of 10001 per hour, max entries 10001
20 at once
0 at once, lifetime 1 minute
concurrency of 20 at once => 20 at once
penalty after 1 strikes => penalty after 1 strike
penalty after 20 strikes, doubling up to 10 minutes
penalty after 20 strikes within 5 minutes, lasting 1 minute, doubling up to 1 day, forgiven after 7 days, prolonging
pause";

#[test]
fn each_option_of_each_algorithm_has_a_text() {
    for line in TEXTS.lines() {
        let (written, text) = line.split_once(" => ").unwrap_or((line, line));
        let quota: Quota = written.parse().expect(line);
        assert_eq!(quota.to_string(), text);
        assert_eq!(text.parse(), Ok(quota), "{text}");
    }
}

/// Each option of each algorithm.
#[test]
fn a_text_means_what_the_builder_makes() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let bucket = TokenBucket::new(10, minutes(5));
    let leaky = LeakyBucket::per_second(10);
    let window = FixedWindow::per_hour(100);
    let penalty = Penalty::after(20)
        .within(minutes(5))
        .lasting(minutes(1))
        .doubling_up_to(minutes(7))
        .forgiven_after(minutes(9));
    for (text, built) in [
        ("10 per second", TokenBucket::per_second(10).try_into()),
        (
            "10 per 5 minutes, burst 20, initial 3",
            bucket.burst(20).initial(3).try_into(),
        ),
        (
            "10 per 5 minutes, refill at once",
            bucket.refill_at_once().try_into(),
        ),
        (
            "7 without refill",
            TokenBucket::without_refill(5).burst(7).try_into(),
        ),
        (
            "7 without refill, initial 2",
            TokenBucket::without_refill(7).initial(2).try_into(),
        ),
        ("leaky bucket of 10 per second", leaky.try_into()),
        (
            "leaky bucket of 10 per second, capacity 20",
            leaky.capacity(20).try_into(),
        ),
        (
            "leaky bucket of 10 per second, queue 20",
            leaky.queue(20).try_into(),
        ),
        ("fixed window of 100 per hour", window.try_into()),
        (
            "fixed window of 100 per hour, aligned, spread",
            window.aligned().spread().try_into(),
        ),
        (
            "5 per calendar day",
            FixedWindow::per_calendar_day(5).try_into(),
        ),
        (
            "5 per calendar day, utc offset -05:30",
            FixedWindow::per_calendar_day(5)
                .utc_offset_minutes(-330)
                .try_into(),
        ),
        (
            "5 per calendar week",
            FixedWindow::per_calendar_week(5).try_into(),
        ),
        (
            "5 per month, spread",
            FixedWindow::per_calendar_month(5).spread().try_into(),
        ),
        (
            "sliding window of 100 per minute",
            SlidingWindow::per_minute(100).try_into(),
        ),
        (
            "sliding log of 100 per hour, max entries 200",
            SlidingLog::per_hour(100).max_entries(200).try_into(),
        ),
        (
            "20 at once, lifetime 5 minutes",
            Concurrency::new(20).lifetime(minutes(5)).try_into(),
        ),
        (
            "penalty after 20 strikes within 5 minutes, lasting 1 minute, doubling up to 7 minutes, \
             forgiven after 9 minutes, prolonging",
            penalty.prolonging().try_into(),
        ),
        ("pause", Pause.try_into()),
    ] {
        let built: Result<Quota, ConfigError> = built;
        assert_eq!(text.parse(), built, "{text}");
        assert_eq!(Quota::try_from(text), built, "{text}");
    }
    for (names, nanos) in UNITS {
        for (name, count) in names.split(' ').flat_map(|name| [(name, 2), (name, 2_000)]) {
            let built: Result<Quota, ConfigError> =
                TokenBucket::new(1, Duration::from_nanos(count * nanos)).try_into();
            assert_eq!(format!("1 per {count} {name}").parse(), built, "{name}");
        }
    }
}

/// Each row of the guide is a quota. `..` is the last row without it.
#[test]
fn the_guide_shows_texts_of_quotas() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/choosing-a-quota.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    let table = page.split("| text | the same in code |").nth(1);
    let rows = table.expect("the table").lines().skip(2);
    let (mut form, mut count) = ("", 0);
    for row in rows.take_while(|row| !row.is_empty()) {
        let text = row.split('`').nth(1).expect("a text");
        let quota: Result<Quota, _> = match text.strip_prefix("..") {
            Some(option) => format!("{form}{option}").parse(),
            None => text.parse(),
        };
        assert!(quota.is_ok(), "{row}: {quota:?}");
        if !text.starts_with("..") {
            form = text;
        }
        count += 1;
    }
    assert_eq!(count, 28);
}

#[test]
fn a_policy_is_made_of_a_name_and_a_text() {
    let policy = Policy::new("api", "3 per hour, burst 5");
    let limiter = Limiter::new(MemoryStore::new(), policy);
    assert_eq!(at_once(left(&limiter, "ann")), 5);
    let wrong = Limiter::builder().policy(Policy::new("api", "3 per huor"));
    let message = r#"policy "api": quota "3 per huor": no unit "huor"; did you mean "hour"?"#;
    assert_config_error(wrong.build(), "quota-text", message);
}

#[test]
fn each_algorithm_has_a_name() {
    let names = "token bucket|leaky bucket|fixed window|sliding window|sliding log|concurrency|penalty|pause";
    for name in names.split('|') {
        let algorithm: Algorithm = name.parse().expect("an algorithm");
        assert_eq!(algorithm.to_string(), name);
        assert_eq!(name.to_uppercase().replace(' ', "_").parse(), Ok(algorithm));
        let shown = format!("{algorithm:?}").to_lowercase();
        assert_eq!(shown, name.replace(' ', ""));
    }
    for (name, rest) in [
        ("tokn bucket", r#"did you mean "token bucket"?"#),
        ("token bucket 5", r#"did you mean "token bucket"?"#),
        (
            "",
            r#"use "token bucket", "leaky bucket", "fixed window", "sliding window", "sliding log", "concurrency", "penalty" or "pause""#,
        ),
    ] {
        let message = format!("algorithm {name:?}: no such algorithm; {rest}");
        let error = name.parse::<Algorithm>().map_err(|error| error.to_string());
        assert_eq!(error, Err(message));
    }
}
