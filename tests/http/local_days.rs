//! Days of a time zone: windows whose quota each request chooses, up to the next midnight.

use jiff::{Timestamp, ZonedDateTime, civil::date, tz::TimeZone};

use crate::prelude::*;

fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("the rules of Berlin")
}

/// As in `docs/questions.md`.
fn until_midnight(now: &ZonedDateTime) -> Duration {
    let midnight = now.tomorrow().and_then(|day| day.start_of_day());
    let midnight = midnight.expect("a day").timestamp().as_millisecond();
    Duration::from_millis((midnight - now.timestamp().as_millisecond()) as u64)
}

/// Ten a day for each caller of a store.
fn daily(store: impl Store, clock: Arc<ManualClock>) -> RateLimitLayer {
    let tier = move |_: &RequestHead<'_>| {
        let now = Timestamp::from_microsecond(clock.now_us() as i64).expect("an instant");
        let window = FixedWindow::new(10, until_midnight(&now.to_zoned_datetime(berlin())));
        Quota::try_from(window).expect("a quota")
    };
    let policy = Policy::new("daily", FixedWindow::per_day(10));
    layer_on(store, policy.shared().quota_by(tier))
}

/// Sends ten requests at this time of a day.
fn ten(layer: &RateLimitLayer, clock: &ManualClock, at: &ZonedDateTime) -> usize {
    clock.set_us(at.timestamp().as_microsecond() as u64);
    (0..10)
        .filter(|_| ask(layer, plain()).status == 200)
        .count()
}

#[test]
fn a_day_of_a_time_zone_ends_at_its_midnight_after_23_24_or_25_hours() {
    for (day, hours) in [
        (date(2026, 3, 29), 23),
        (date(2026, 3, 30), 24),
        (date(2026, 10, 25), 25),
    ] {
        let (store, clock) = standing_store();
        let layer = daily(store, clock.clone());
        let start = day.to_zoned_datetime(berlin()).expect("an instant");
        let midnight = start.tomorrow().expect("an instant");
        assert_eq!(until_midnight(&start).as_secs(), hours * 3_600);
        let at = |hour, minute| {
            let time = day.at(hour, minute, 0, 0).to_zoned_datetime(berlin());
            time.expect("an instant")
        };
        assert_eq!(ten(&layer, &clock, &at(0, 30)), 10, "{day}");
        for (hour, minute) in [(1, 59), (3, 0), (12, 0), (23, 30)] {
            let now = at(hour, minute);
            assert_eq!(ten(&layer, &clock, &now), 0, "{now}");
            let left = until_midnight(&now).as_secs();
            let denied = ask(&layer, plain());
            assert_eq!(denied.number("retry-after"), left, "{now}");
        }
        clock.set_us(midnight.timestamp().as_microsecond() as u64 - 1);
        assert_eq!(ask(&layer, plain()).status, 429, "{day}");
        assert_eq!(ten(&layer, &clock, &midnight), 10, "{day}");
    }
}
