//! Texts that are no quota, with the word that is wrong and what the message says of it.

use tower_throttle::Quota;

#[rustfmt::skip]
const MISTAKES: &[(&str, &str, &str)] = &[
    ("", "", r#"an empty text; write "10 per second, burst 20", say"#),
    ("ten per second", "ten", r#""ten" is neither a number nor an algorithm; use "token bucket", "leaky bucket", "fixed window", "sliding window", "sliding log", "concurrency", "penalty" or "pause""#),
    ("/", "/", r#""/" is no whole number; write it in digits, as in "10" or "1_000""#),
    ("10", "", r#"nothing follows "10"; use "per", "at once" or "without refill""#),
    ("10 pre second", "pre", r#""pre" follows "10"; did you mean "per"?"#),
    ("1,000 per hour", ",", r#"a comma follows "1"; write large numbers without commas, as in "1_000""#),
    ("10 per", "", r#"the period has no unit; write "per second" or "per 5 minutes", say"#),
    ("10 per secnd", "secnd", r#"no unit "secnd"; did you mean "second"?"#),
    ("10 per sec.", ".", r#""." is no option; drop it"#),
    ("10/", "", r#"the period has no unit; write "per second" or "per 5 minutes", say"#),
    ("10/minuet", "minuet", r#"no unit "minuet"; did you mean "minute"?"#),
    ("10//second", "/", r#"no unit "/"; use "week", "day", "hour", "minute", "second", "millisecond", "microsecond" or "nanosecond""#),
    ("10 requests", "", r#"nothing follows "10"; use "per", "at once" or "without refill""#),
    ("10 requests requests per second", "requests", r#""requests" follows "10"; use "per", "at once" or "without refill""#),
    ("10 per second requests", "requests", r#"a token bucket has no option "requests"; use "burst", "initial" or "refill at once""#),
    ("10 per fortnight", "fortnight", r#"no unit "fortnight"; use "week", "day", "hour", "minute", "second", "millisecond", "microsecond" or "nanosecond""#),
    ("10 per year", "year", r#""year" has no fixed length; use days"#),
    ("10 per 2 months", "2 months", r#"a month of the calendar has no multiples; write "per month", or count days"#),
    ("10 per month, burst 20", "burst", r#"a fixed window by the calendar has no option "burst"; use "utc offset" or "spread""#),
    ("10 per calendar", "", r#"nothing follows "calendar"; use "day", "week" or "month""#),
    ("10 per calendar weak", "weak", r#""weak" follows "calendar"; did you mean "week"?"#),
    ("10 per second,", ",", "nothing follows the last comma; drop it"),
    ("10 per second,,burst 20", ",", r#""," is no option; drop it"#),
    ("10 per second burts 20", "burts", r#"a token bucket has no option "burts"; did you mean "burst"?"#),
    ("10 per second 20", "20", r#""20" is no option; drop it"#),
    ("10 per second, capacity 20", "capacity", r#"a token bucket has no option "capacity"; use "burst", "initial" or "refill at once""#),
    ("10 per second, burst", "", "a number is missing at the end; write one"),
    ("10 per second, burst twenty", "twenty", r#""twenty" is no whole number; write it in digits, as in "10" or "1_000""#),
    ("10 per second, burst 20, burst 30", "burst", r#""burst" is set twice; drop one"#),
    ("10 per second, burst 1,000", "000", r#""000" is no option; write large numbers without commas, as in "1_000""#),
    ("10 per second, burst 20 more", "more", r#"a token bucket has no option "more"; use "burst", "initial" or "refill at once""#),
    ("10 per second, refill", "refill", r#"a token bucket has no option "refill"; did you mean "refill at once"?"#),
    ("1.5 per second", "1.5", r#""1.5" is no whole number; write it in digits, as in "10" or "1_000""#),
    ("18446744073709551616 per second", "18446744073709551616", r#""18446744073709551616" is too large; use a number below 2^64"#),
    ("10 at", "at", r#""at" follows "10"; use "per", "at once" or "without refill""#),
    ("10 at once, burst 5", "burst", r#"a concurrency limit has no option "burst"; use "lifetime""#),
    ("10 at once, lifetime 30", "30", r#""30" has no unit; write "30 seconds", say"#),
    ("10 without", "without", r#""without" follows "10"; did you mean "without refill"?"#),
    ("token bucket", "", r#"nothing follows "token bucket"; use "of""#),
    ("leaky bucket 10 per second", "10", r#""10" follows "leaky bucket"; use "of""#),
    ("leaky bucket of 10 per month", "month", r#"a leaky bucket has no calendar month; write "per 30 days", or use a fixed window"#),
    ("leaky bucket of 10 per second, capacity 5, queue 5", "queue", r#""queue" beside "capacity"; drop one"#),
    ("fixed window of 10 per calendar week, aligned", "aligned", r#"a fixed window by the calendar has no option "aligned"; use "utc offset" or "spread""#),
    ("10 per calendar day, utc offset 2", "2", r#"the offset from UTC is a sign, hours and minutes; write "+02:00" or "-05:00", say"#),
    ("10 per calendar day, utc offset +2:00, spread", "+2:00", r#"the offset from UTC is a sign, hours and minutes; write "+02:00" or "-05:00", say"#),
    ("10 per calendar day, utc offset +02:60", "+02:60", r#"the offset from UTC is a sign, hours and minutes; write "+02:00" or "-05:00", say"#),
    ("10 per calendar day, utc offset", "", r#"the offset from UTC is a sign, hours and minutes; write "+02:00" or "-05:00", say"#),
    ("10 per second, utc offset +02:00", "utc offset", r#"a token bucket has no option "utc offset"; use "burst", "initial" or "refill at once""#),
    ("sliding window of 10 per hour, spread", "spread", r#"a sliding window has no option "spread"; drop it"#),
    ("sliding log of 10 per hour, max entry 5", "max entry", r#"a sliding log has no option "max entry"; did you mean "max entries"?"#),
    ("penalty of 20", "of", r#""of" follows "penalty"; use "after""#),
    ("penalty after 20 strikes within 10", "10", r#""10" has no unit; write "10 seconds", say"#),
    ("penalty after 20 strikes, doubling to 5 minutes", "doubling to", r#"a penalty has no option "doubling to"; did you mean "doubling up to"?"#),
    ("pause of 3 seconds", "of", r#"a pause has no option "of"; drop it"#),
    ("99999999999999 per 99999999999999 weeks", "99999999999999 weeks", "99999999999999 weeks are too long; use a shorter time"),
    ("10 per second; burst 20", ";", r#"";" is no option; drop it"#),
    ("🦀", "🦀", r#""🦀" is no whole number; write it in digits, as in "10" or "1_000""#),
];

#[test]
fn a_mistake_names_the_wrong_word_and_what_to_change() {
    for (text, word, expected) in MISTAKES {
        let error = text.parse::<Quota>().expect_err(text);
        assert_eq!(error.code(), "quota-text");
        assert_eq!(error.to_string(), format!("quota {text:?}: {expected}"));
        let at = error.span().expect("a wrong word");
        assert_eq!(&text[at.clone()], *word, "{text:?}");
        assert!(!at.is_empty() || at.end == text.len(), "{text:?}");
    }
}

/// Texts that say what no builder makes, with the code and the message of the builder.
const OF_BUILDERS: &str = "\
10 per second, burst 20, initial 30 | initial-above-burst | `initial(30)` exceeds the burst of 20; lower it, or raise the burst
10 per 0 seconds | zero-period | a period of zero; use a longer one
fixed window of 5 per hour, spread | spread-unaligned | `spread()` on windows that start with each caller's first request; add `aligned()`, or drop `spread()`
fixed window of 5 per hour, utc offset +02:00 | utc-offset-unaligned | `utc_offset_minutes(..)` on windows that start with each caller's first request; add `aligned()`, or drop `utc_offset_minutes(..)`
5 per month, utc offset -24:00 | utc-offset-too-large | `utc_offset_minutes(-1440)` is a day or more; use a smaller offset
10 per second, burst 0 | zero | `burst` is zero or empty; set a value, or leave it out for the default
0 without refill | zero | `burst` is zero or empty; set a value, or leave it out for the default
2_000_000 per second | rate-too-high | 2000000 per 1s is more than 1,000,000 a second; lower the limit, or count in larger units
20 at once, lifetime 5ms | lifetime-too-short | a permit lifetime of 5ms is too short to renew; use `lifetime(..)` of 100 ms or more
sliding log of 20000 per hour | log-too-large | a SlidingLog limit of 20000 exceeds the maximum of 10000 entries; use a SlidingWindow, or raise `max_entries(..)`
fixed window of 5 per 1500 us | window-not-whole-milliseconds | a window of 1.5ms has a fraction of a millisecond; use whole milliseconds
penalty after 20 strikes, forgiven after 7 days | nothing-to-forgive | `forgiven_after(..)` without `doubling_up_to(..)`, where all bans are equally long; drop it, or double the bans";

#[test]
fn the_error_of_a_builder_stays_what_it_is() {
    for line in OF_BUILDERS.lines() {
        let columns: Vec<_> = line.split(" | ").collect();
        let error = columns[0].parse::<Quota>().expect_err(line);
        assert_eq!([error.code(), &error.to_string()], columns[1..]);
    }
}

#[test]
fn a_long_word_is_cut_in_a_message() {
    let text = format!("10 per {}", "secnd".repeat(1_000));
    let error = text.parse::<Quota>().expect_err("no unit");
    let start = format!(
        "quota {text:?}: no unit \"{}..\"; use \"week\"",
        "secnd".repeat(8)
    );
    assert!(error.to_string().starts_with(&start), "{error}");
}
