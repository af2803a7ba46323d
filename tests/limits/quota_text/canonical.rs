//! One text for each quota.

use std::time::Duration;

use tower_throttle::{
    Algorithm, Concurrency, ConfigError, FixedWindow, LeakyBucket, Limiter, MemoryStore, Penalty,
    Policy, Quota, SlidingLog, SlidingWindow, TokenBucket,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn of<Q: TryInto<Quota, Error = ConfigError>>(quota: Q) -> Quota {
    quota.try_into().expect("a quota")
}

#[test]
fn each_option_of_each_algorithm_has_a_text() {
    let bucket = || TokenBucket::per_second(10);
    let leaky = || LeakyBucket::per_second(10);
    let window = || FixedWindow::per_hour(100);
    let penalty = || Penalty::after(20);
    for (quota, text) in [
        (of(bucket()), "10 per second"),
        (of(TokenBucket::per_minute(10)), "10 per minute"),
        (of(TokenBucket::per_hour(10)), "10 per hour"),
        (of(TokenBucket::per_day(10)), "10 per day"),
        (of(TokenBucket::new(10, 7 * DAY)), "10 per 7 days"),
        (of(TokenBucket::new(1, 2 * SECOND)), "1 per 2 seconds"),
        (of(TokenBucket::new(1, 90 * SECOND)), "1 per 90 seconds"),
        (
            of(TokenBucket::new(1, SECOND / 4)),
            "1 per 250 milliseconds",
        ),
        (of(TokenBucket::new(1, SECOND / 1_000)), "1 per millisecond"),
        (
            of(TokenBucket::new(1, Duration::from_nanos(1_001))),
            "1 per 1001 nanoseconds",
        ),
        (of(bucket().burst(20)), "10 per second, burst 20"),
        (of(bucket().burst(10)), "10 per second"),
        (of(bucket().initial(0)), "10 per second, initial 0"),
        (
            of(bucket().burst(20).initial(5)),
            "10 per second, burst 20, initial 5",
        ),
        (
            of(bucket().burst(20).initial(20)),
            "10 per second, burst 20",
        ),
        (of(TokenBucket::per_second(0)), "0 per second"),
        (
            of(bucket().refill_at_once()),
            "10 per second, refill at once",
        ),
        (
            of(TokenBucket::new(10, 5 * MINUTE).initial(5).refill_at_once()),
            "10 per 5 minutes, initial 5, refill at once",
        ),
        (
            of(bucket().burst(20).initial(5).refill_at_once()),
            "10 per second, burst 20, initial 5, refill at once",
        ),
        (
            of(TokenBucket::per_day(0).refill_at_once()),
            "0 per day, refill at once",
        ),
        (of(TokenBucket::without_refill(5)), "5 without refill"),
        (
            of(TokenBucket::without_refill(5).burst(7)),
            "7 without refill",
        ),
        (
            of(TokenBucket::without_refill(5).initial(0)),
            "5 without refill, initial 0",
        ),
        (of(leaky()), "leaky bucket of 10 per second"),
        (of(leaky().capacity(10)), "leaky bucket of 10 per second"),
        (
            of(leaky().capacity(20)),
            "leaky bucket of 10 per second, capacity 20",
        ),
        (
            of(leaky().queue(20)),
            "leaky bucket of 10 per second, queue 20",
        ),
        (
            of(leaky().queue(0)),
            "leaky bucket of 10 per second, queue 0",
        ),
        (
            of(LeakyBucket::per_second(0)),
            "leaky bucket of 0 per second",
        ),
        (
            of(LeakyBucket::per_second(0).queue(0)),
            "leaky bucket of 0 per second, queue 0",
        ),
        (of(window()), "fixed window of 100 per hour"),
        (
            of(window().aligned()),
            "fixed window of 100 per hour, aligned",
        ),
        (
            of(window().aligned().spread()),
            "fixed window of 100 per hour, aligned, spread",
        ),
        (of(FixedWindow::per_day(5)), "fixed window of 5 per day"),
        (
            of(FixedWindow::per_day(5).aligned()),
            "fixed window of 5 per calendar day",
        ),
        (
            of(FixedWindow::per_calendar_day(5)),
            "fixed window of 5 per calendar day",
        ),
        (
            of(FixedWindow::per_calendar_week(5)),
            "fixed window of 5 per calendar week",
        ),
        (
            of(FixedWindow::per_calendar_week(5).aligned()),
            "fixed window of 5 per 7 days, aligned",
        ),
        (
            of(FixedWindow::per_calendar_month(5).spread()),
            "fixed window of 5 per calendar month, spread",
        ),
        (
            of(FixedWindow::new(5, 31 * DAY)),
            "fixed window of 5 per 31 days",
        ),
        (
            of(SlidingWindow::per_minute(100)),
            "sliding window of 100 per minute",
        ),
        (
            of(SlidingLog::per_hour(10_000)),
            "sliding log of 10000 per hour",
        ),
        (
            of(SlidingLog::per_hour(10).max_entries(10)),
            "sliding log of 10 per hour",
        ),
        (
            of(SlidingLog::per_hour(10_001).max_entries(20_000)),
            "sliding log of 10001 per hour, max entries 10001",
        ),
        (of(Concurrency::new(20)), "20 at once"),
        (
            of(Concurrency::new(0).lifetime(MINUTE)),
            "0 at once, lifetime 1 minute",
        ),
        (of(penalty()), "penalty after 20 strikes"),
        (of(Penalty::after(1)), "penalty after 1 strike"),
        (
            of(penalty().within(MINUTE)),
            "penalty after 20 strikes within 1 minute",
        ),
        (
            of(penalty().lasting(MINUTE)),
            "penalty after 20 strikes, lasting 1 minute",
        ),
        (
            of(penalty().doubling_up_to(10 * MINUTE)),
            "penalty after 20 strikes, doubling up to 10 minutes",
        ),
        (
            of(penalty()
                .within(5 * MINUTE)
                .lasting(MINUTE)
                .doubling_up_to(DAY)
                .forgiven_after(7 * DAY)
                .prolonging()),
            "penalty after 20 strikes within 5 minutes, lasting 1 minute, doubling up to 1 day, \
             forgiven after 7 days, prolonging",
        ),
    ] {
        assert_eq!(quota.to_string(), text, "{quota:?}");
        assert_eq!(text.parse(), Ok(quota), "{text}");
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
    assert_eq!(count, 26);
}

#[test]
fn a_month_is_one_of_the_calendar() {
    let plan = FixedWindow::per_calendar_month(1_000_000).try_into();
    for text in [
        "1_000_000 per month",
        "1000000 per 1 month",
        "1000000 per calendar month",
        "fixed window of 1000000 per month",
        "fixed window of 1000000 per calendar month",
    ] {
        assert_eq!(text.parse::<Quota>(), plan, "{text}");
    }
    let bucket = TokenBucket::new(1_000_000, 30 * DAY).try_into();
    assert_eq!("1000000 per 30 days".parse::<Quota>(), bucket);
}

#[test]
fn a_policy_is_made_of_a_name_and_a_text() {
    let limiter = Limiter::new(
        MemoryStore::new(),
        Policy::new("api", "3 per hour, burst 5"),
    );
    let decision = limiter.check_now("ann").expect("a decision");
    let policy = decision.policies().next().expect("the policy");
    assert_eq!(policy.capacity(), 5);
    let error = Limiter::builder()
        .store(MemoryStore::new())
        .policy(Policy::new("api", "3 per huor"))
        .build();
    let error = error.expect_err("a mistake");
    assert_eq!(error.code(), "quota-text");
    assert_eq!(
        error.to_string(),
        r#"policy "api": quota "3 per huor": no unit "huor"; did you mean "hour"?"#
    );
}

#[test]
fn each_algorithm_has_a_name() {
    for (algorithm, name) in [
        (Algorithm::TokenBucket, "token bucket"),
        (Algorithm::LeakyBucket, "leaky bucket"),
        (Algorithm::FixedWindow, "fixed window"),
        (Algorithm::SlidingWindow, "sliding window"),
        (Algorithm::SlidingLog, "sliding log"),
        (Algorithm::Concurrency, "concurrency"),
        (Algorithm::Penalty, "penalty"),
    ] {
        assert_eq!(algorithm.to_string(), name);
        assert_eq!(name.parse(), Ok(algorithm));
        assert_eq!(name.to_uppercase().replace(' ', "_").parse(), Ok(algorithm));
    }
    for (name, message) in [
        (
            "tokn bucket",
            r#"algorithm "tokn bucket": no such algorithm; did you mean "token bucket"?"#,
        ),
        (
            "token bucket 5",
            r#"algorithm "token bucket 5": no such algorithm; did you mean "token bucket"?"#,
        ),
        (
            "",
            r#"algorithm "": no such algorithm; use "token bucket", "leaky bucket", "fixed window", "sliding window", "sliding log", "concurrency" or "penalty""#,
        ),
    ] {
        let error = name.parse::<Algorithm>().map_err(|error| error.to_string());
        assert_eq!(error, Err(message.to_owned()));
    }
}
