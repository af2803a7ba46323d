use std::{
    slice,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::{collection::vec, prelude::*};

use super::{
    Dialect, Dialects, Refusal, TimeUnit, Told,
    dialects::{BUILT_IN, Form, Row},
    number::number,
    time::until,
};

const DEFAULT: Duration = Duration::from_millis(1_234);

/// Reads lines of `name: value`, with the `date` that all times are compared with.
fn headers(lines: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let fields = lines.split('|').filter_map(|line| line.split_once(':'));
    for (name, value) in fields.chain([("date", "Sun, 06 Nov 1994 08:49:37 GMT")]) {
        let name: HeaderName = name.trim().parse().unwrap();
        headers.append(name, value.trim().parse().unwrap());
    }
    headers
}

fn told(status: StatusCode, headers: &HeaderMap) -> Told {
    Told::read(status, headers, &Dialects::default(), DEFAULT).unwrap_or_default()
}

fn told_of(status: u16, lines: &str) -> Told {
    told(StatusCode::from_u16(status).unwrap(), &headers(lines))
}

/// The longest pause.
fn pause(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let pauses = told(status, headers).pauses.into_iter();
    pauses.map(|(_, pause)| pause).max()
}

#[track_caller]
fn assert_pauses(rows: &[(u16, &str, Option<u64>)]) {
    for (status, lines, expected_ms) in rows {
        let status = StatusCode::from_u16(*status).unwrap();
        let pause = pause(status, &headers(lines));
        let pause_ms = pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        assert_eq!(pause_ms, *expected_ms, "{status} {lines}");
    }
}

#[test]
fn a_refusal_pauses_for_the_time_that_it_says() {
    const YEAR_MS: u64 = 31_536_000_000;
    assert_pauses(&[
        (429, "", Some(1_234)),
        (429, "retry-after: 3", Some(3_000)),
        (429, "retry-after: 0", Some(1_234)),
        (429, "retry-after: -5", Some(1_234)),
        (429, "retry-after: 1.5", Some(1_500)),
        (429, "retry-after: soon", Some(1_234)),
        (429, "retry-after: 1e9", Some(1_234)),
        (429, "retry-after: inf", Some(1_234)),
        (429, "retry-after: ", Some(1_234)),
        (429, "retry-after: 31536000", Some(YEAR_MS)),
        (429, "retry-after: 99999999999999999999999", Some(u64::MAX)),
        (429, "retry-after: 3 | retry-after: 7", Some(7_000)),
        (429, "retry-after: never | retry-after: 7", Some(7_000)),
        (429, "retry-after-ms: 250 | retry-after: 1", Some(250)),
        (429, "retry-after-ms: 0 | retry-after: 60", Some(60_000)),
        // By the partner's clock, which may differ from ours by years.
        (
            429,
            "retry-after: Sun, 06 Nov 1994 08:49:39 GMT",
            Some(2_000),
        ),
        (
            429,
            "retry-after: Sun, 06 Nov 1994 08:40:00 GMT",
            Some(1_234),
        ),
        (
            429,
            "retry-after: Mon, 06 Nov 1995 08:49:37 GMT",
            Some(YEAR_MS),
        ),
        (503, "retry-after: 3", Some(3_000)),
        (403, "retry-after: 3", Some(3_000)),
        (503, "", None),
        (500, "", None),
        (404, "", None),
        (200, "retry-after: 3", None),
        (301, "retry-after: 3", None),
    ]);
}

#[test]
fn a_window_that_is_used_up_pauses_until_it_ends() {
    assert_pauses(&[
        (200, r#"ratelimit: "day";r=0;t=30"#, Some(30_000)),
        (
            200,
            r#"ratelimit: "burst";r=0;t=2, "day";r=0;t=30"#,
            Some(30_000),
        ),
        (
            200,
            r#"ratelimit: "burst";r=0;t=2, "day";r=9;t=30"#,
            Some(2_000),
        ),
        (
            200,
            r#"ratelimit: "burst";r=3;t=2 | ratelimit: "day";r=0;t=30"#,
            Some(30_000),
        ),
        (200, r#"ratelimit: "day";r=1;t=30"#, None),
        (200, r#"ratelimit: "day";r=0;t=0"#, None),
        (200, r#"ratelimit: "day";r=0;t=-30"#, None),
        (200, r#"ratelimit: "day";r=0"#, None),
        (200, r#"ratelimit: "day";;r=0;t=30"#, None),
        (
            200,
            "ratelimit: limit=100, remaining=0, reset=30",
            Some(30_000),
        ),
        (200, "ratelimit: limit=100, remaining=5, reset=30", None),
        (
            200,
            "ratelimit-remaining: 0 | ratelimit-reset: 30",
            Some(30_000),
        ),
        (
            200,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 30",
            Some(30_000),
        ),
        (
            200,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 784111787",
            Some(784_111_787_000),
        ),
        (
            200,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 784111787 | x-ratelimit-reset-after: 0.25",
            Some(250),
        ),
        (
            200,
            "x-rate-limit-remaining: 0 | x-rate-limit-reset: 30",
            Some(30_000),
        ),
        (
            200,
            "x-ratelimit-remaining: -1 | x-ratelimit-reset: 30",
            None,
        ),
        (200, "x-ratelimit-remaining: 0", None),
        (200, "x-ratelimit-reset: 30", None),
        (
            403,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 30",
            Some(30_000),
        ),
        // A refusal says its own time.
        (
            429,
            "retry-after: 3 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 30",
            Some(3_000),
        ),
        (
            429,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 30",
            Some(30_000),
        ),
        (
            429,
            "x-ratelimit-remaining: 5 | x-ratelimit-reset: 30",
            Some(1_234),
        ),
    ]);
}

/// A reset of 2001 or later is a time since 1970, in seconds or in milliseconds.
#[test]
fn a_reset_since_1970_is_compared_with_the_date_of_the_response() {
    let mut fields = headers("x-ratelimit-remaining: 0");
    let at = Duration::from_secs(1_700_000_000);
    let date = httpdate::fmt_http_date(UNIX_EPOCH + at);
    fields.insert("date", HeaderValue::try_from(date).unwrap());
    for (reset, expected) in [("1700000030", 30), ("1700000030000", 30)] {
        fields.insert("x-ratelimit-reset", HeaderValue::from_static(reset));
        let pause = pause(StatusCode::OK, &fields);
        assert_eq!(pause, Some(Duration::from_secs(expected)), "{reset}");
    }
    fields.insert("x-ratelimit-reset", HeaderValue::from_static("1699999999"));
    assert_eq!(pause(StatusCode::OK, &fields), None, "it is past");
    fields.remove("date");
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3_600);
    fields.insert("x-ratelimit-reset", soon.as_secs().into());
    let pause = pause(StatusCode::OK, &fields).unwrap();
    assert!((3_500..=3_600).contains(&pause.as_secs()), "{pause:?}");
}

fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let field = |(number, bytes): &(u8, &[u8])| {
        let head = [number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        [&head, *bytes].concat()
    };
    fields.iter().flat_map(field).collect()
}

/// A `google.rpc.Status` with a message, another detail, and a `RetryInfo` of this delay.
fn details(delay: &[u8]) -> String {
    let other = message(&[
        (1, b"type.googleapis.com/google.rpc.Help"),
        (2, b"\x0a\x01x"),
    ]);
    let info = message(&[(1, delay)]);
    let info = message(&[(1, b"type.googleapis.com/google.rpc.RetryInfo"), (2, &info)]);
    let status = [
        &[8, 8][..],
        &message(&[(2, b"wait"), (3, &other), (3, &info)]),
    ]
    .concat();
    STANDARD.encode(status)
}

#[test]
fn a_grpc_status_pauses_for_its_retry_info() {
    // 2 s and 500 ms; 1 s; -1 s; nothing.
    let delay = details(b"\x08\x02\x10\x80\xca\xb5\xee\x01");
    let without_padding = delay.trim_end_matches('=');
    let second = details(b"\x08\x01");
    let negative = details(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    for (lines, expected_ms) in [
        (
            format!("grpc-status: 8 | grpc-status-details-bin: {delay}"),
            Some(2_500),
        ),
        (
            format!("grpc-status: 8 | grpc-status-details-bin: {without_padding}"),
            Some(2_500),
        ),
        (
            format!("grpc-status: 14 | grpc-status-details-bin: {second}"),
            Some(1_000),
        ),
        (
            format!("grpc-status: 8 | grpc-status-details-bin: {negative}"),
            Some(1_234),
        ),
        (
            format!("grpc-status: 8 | grpc-status-details-bin: {}", details(b"")),
            Some(1_234),
        ),
        (
            format!("grpc-status: 8 | grpc-status-details-bin: {}", &delay[..40]),
            Some(1_234),
        ),
        (
            "grpc-status: 8 | grpc-status-details-bin: ?".to_owned(),
            Some(1_234),
        ),
        (
            "grpc-status: 8 | grpc-retry-pushback-ms: 70".to_owned(),
            Some(70),
        ),
        (
            "grpc-status: 8 | grpc-retry-pushback-ms: -1".to_owned(),
            Some(1_234),
        ),
        ("grpc-status: 8".to_owned(), Some(1_234)),
        ("grpc-status: 14".to_owned(), None),
        (
            format!("grpc-status: 5 | grpc-status-details-bin: {second}"),
            None,
        ),
        ("grpc-status: 0".to_owned(), None),
    ] {
        assert_pauses(&[(200, &lines, expected_ms)]);
    }
}

#[test]
fn a_number_may_have_a_fraction_and_nothing_else() {
    for (text, whole, nanos) in [
        ("0", 0, 0),
        ("0.0", 0, 0),
        ("0.9", 0, 900_000_000),
        ("598.0", 598, 0),
        (".5", 0, 500_000_000),
        ("5.", 5, 0),
        ("007", 7, 0),
        ("8.64", 8, 640_000_000),
        ("0.0000000001", 0, 1),
        ("0.9999999999", 0, 1_000_000_000),
        ("99999999999999999999999", u64::MAX, 0),
    ] {
        let seconds = Duration::from_secs(whole).saturating_add(Duration::from_nanos(nanos));
        let number = number(text).unwrap();
        assert_eq!((number.whole, number.seconds()), (whole, seconds), "{text}");
    }
    for text in [
        "", ".", "-1", "+1", "1e9", "inf", "NaN", "1_000", "0x1", "1 2", "1.2.3", "١",
    ] {
        assert_eq!(number(text), None, "{text}");
    }
    assert_eq!(
        number("0.0000001").unwrap().milliseconds(),
        Duration::from_nanos(1)
    );
}

#[test]
fn a_time_is_a_number_a_date_or_a_duration() {
    use TimeUnit::{BySize, EpochMilliseconds, EpochSeconds, Milliseconds, Seconds};

    let now = httpdate::parse_http_date("Sat, 28 Nov 2026 10:00:00 GMT").unwrap();
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (epoch, epoch_ms) = (since_1970 + 30, (since_1970 + 30) * 1_000);
    for (text, unit, expected_ms) in [
        ("30", Seconds, Some(30_000)),
        ("8.64", Seconds, Some(8_640)),
        ("27500", Milliseconds, Some(27_500)),
        (&*epoch.to_string(), EpochSeconds, Some(30_000)),
        (&*format!("{epoch}.25"), EpochSeconds, Some(30_250)),
        (&*epoch_ms.to_string(), EpochMilliseconds, Some(30_000)),
        ("30", EpochSeconds, Some(0)),
        ("999999999", BySize, Some(999_999_999_000)),
        ("1000000000", BySize, Some(0)),
        (&*epoch.to_string(), BySize, Some(30_000)),
        (&*epoch_ms.to_string(), BySize, Some(30_000)),
        ("-5", Seconds, Some(0)),
        ("-5.5", BySize, Some(0)),
        // A unit of its own has precedence over that of the field.
        ("30s", Milliseconds, Some(30_000)),
        ("20ms", Seconds, Some(20)),
        ("8.64s", Seconds, Some(8_640)),
        ("6m0s", Seconds, Some(360_000)),
        ("14m24s", Seconds, Some(864_000)),
        ("1h2m3.5s", Seconds, Some(3_723_500)),
        ("PT10S", Seconds, Some(10_000)),
        ("-3s", Seconds, Some(0)),
        ("2026-11-28T10:04:00Z", Seconds, Some(240_000)),
        ("2026-11-28T10:00:00.500Z", EpochSeconds, Some(500)),
        ("2026-11-28T12:04:00+02:00", Seconds, Some(240_000)),
        ("2026-11-28T10:04Z", Seconds, Some(240_000)),
        ("2026-11-28 10:04:00 UTC", Seconds, Some(240_000)),
        ("2026-11-28T09:00:00Z", Seconds, Some(0)),
        ("Sat, 28 Nov 2026 10:00:02 GMT", Seconds, Some(2_000)),
        ("Sat, 28 Nov 2026 10:00:02 UTC", Seconds, Some(2_000)),
        ("Saturday, 28-Nov-26 10:00:02 GMT", Seconds, Some(2_000)),
        ("Sat Nov 28 10:00:02 2026", Seconds, Some(2_000)),
        // Of another time zone, or of none.
        ("2026-11-28T10:04:00", Seconds, None),
        ("2026-11-28", Seconds, None),
        ("Tue Feb 16 2021 09:02:42 GMT+0100 (CET)", Seconds, None),
        ("6m0", Seconds, None),
        ("1d", Seconds, None),
        ("30 30", Seconds, None),
        ("soon", Seconds, None),
        ("--5", Seconds, None),
        ("", Seconds, None),
    ] {
        let expected = expected_ms.map(Duration::from_millis);
        assert_eq!(until(text, unit, now), expected, "{text} {unit:?}");
    }
}

/// Fields as the partners send them. The date is 08:49:37.
#[test]
fn each_dialect_pauses_for_the_time_that_it_says() {
    assert_pauses(&[
        // Reddit, and others that count in fractions.
        (
            200,
            "x-ratelimit-remaining: 0.0 | x-ratelimit-reset: 117",
            Some(117_000),
        ),
        (
            429,
            "x-ratelimit-remaining: 0.0 | x-ratelimit-reset: 117",
            Some(117_000),
        ),
        (
            200,
            "x-ratelimit-remaining: 0.9 | x-ratelimit-reset: 117",
            Some(117_000),
        ),
        (
            200,
            "x-ratelimit-remaining: 1.0 | x-ratelimit-reset: 117",
            None,
        ),
        // Mastodon, Atlassian.
        (
            200,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 1994-11-06T08:50:00.000Z",
            Some(23_000),
        ),
        (
            429,
            r#"retry-after: 0 | ratelimit: "tenant-app-quota";r=0;t=2788"#,
            Some(2_788_000),
        ),
        // Atlassian does not enforce what it states in such a field.
        (
            200,
            r#"beta-ratelimit: "tenant-app-quota";r=0;t=2788 | beta-retry-after: 2788"#,
            None,
        ),
        (
            429,
            r#"retry-after: 5 | beta-ratelimit: "tenant-app-quota";r=0;t=2788"#,
            Some(5_000),
        ),
        // Zoom.
        (
            429,
            "x-ratelimit-remaining: 0 | retry-after: 1994-11-07T00:00:00Z",
            Some(54_623_000),
        ),
        (429, "retry-after: 30, 30", Some(30_000)),
        (429, "retry-after: 30s", Some(30_000)),
        (
            429,
            "retry-after: Sun, 06 Nov 1994 08:49:39 UTC",
            Some(2_000),
        ),
        (429, "x-rate-limit-retry-after-seconds: 37", Some(37_000)),
        // MailerLite, Symfony.
        (429, "x-ratelimit-retry-after: 59", Some(59_000)),
        (
            429,
            "date: Tue, 05 Jan 2021 10:59:30 GMT | x-ratelimit-retry-after: 1609844400",
            Some(30_000),
        ),
        (429, "x-ms-retry-after-ms: 27500", Some(27_500)),
        // OpenAI.
        (
            429,
            "x-ratelimit-remaining-requests: 0 | x-ratelimit-reset-requests: 8.64s \
             | x-ratelimit-remaining-tokens: 149984 | x-ratelimit-reset-tokens: 6m0s",
            Some(8_640),
        ),
        (
            200,
            "x-ratelimit-remaining-requests: 0 | x-ratelimit-reset-requests: 1s \
             | x-ratelimit-remaining-tokens: 0 | x-ratelimit-reset-tokens: 14m24s",
            Some(864_000),
        ),
        // Anthropic.
        (
            200,
            "anthropic-ratelimit-requests-remaining: 0 | anthropic-ratelimit-requests-reset: 1994-11-06T08:49:47Z \
             | anthropic-ratelimit-input-tokens-remaining: 5000 \
             | anthropic-ratelimit-input-tokens-reset: 1994-11-06T09:49:47Z",
            Some(10_000),
        ),
        // Linear. Its milliseconds are since 1970.
        (
            200,
            "x-ratelimit-requests-remaining: 0 | x-ratelimit-requests-reset: 784111787000",
            Some(10_000),
        ),
        (
            200,
            "x-ratelimit-complexity-remaining: 0 | x-ratelimit-complexity-reset: 784111797000",
            Some(20_000),
        ),
        (
            200,
            "x-hubspot-ratelimit-remaining: 0 | x-hubspot-ratelimit-interval-milliseconds: 10000",
            Some(10_000),
        ),
        // The IETF's drafts, GitLab.
        (
            429,
            "ratelimit-remaining: 0 | ratelimit-reset: 60",
            Some(60_000),
        ),
        (
            200,
            "date: Tue, 05 Jan 2021 10:59:30 GMT | ratelimit-remaining: 0 | ratelimit-reset: 1609844400",
            Some(30_000),
        ),
        // Brave states two windows in one field.
        (
            200,
            "x-ratelimit-remaining: 0, 1000 | x-ratelimit-reset: 1, 1419704",
            Some(1_000),
        ),
        (
            200,
            "x-ratelimit-remaining: 1, 0 | x-ratelimit-reset: 1, 1419704",
            Some(1_419_704_000),
        ),
        (
            200,
            "x-ratelimit-remaining: 1, 1000 | x-ratelimit-reset: 1, 1419704",
            None,
        ),
        // Which of them is used up is not known.
        (
            200,
            "x-ratelimit-remaining: 0, 1000 | x-ratelimit-reset: 1",
            None,
        ),
        // Draft 7 on two lines (RFC 9651, section 4.2).
        (
            200,
            "ratelimit: limit=10, remaining=0 | ratelimit: reset=7",
            Some(7_000),
        ),
        (
            200,
            "ratelimit: limit=10, remaining=3 | ratelimit: reset=7",
            None,
        ),
        (200, r#"ratelimit: "day";r=0.9;t=7.5"#, Some(7_500)),
        // All forms count, and the window that lasts longest.
        (
            200,
            r#"ratelimit: "burst";r=0;t=2 | x-ratelimit-remaining: 0 | x-ratelimit-reset: 30"#,
            Some(30_000),
        ),
    ]);
}

/// For pause, repetition and budget alike.
#[test]
fn a_refusal_is_decided_once() {
    const FINAL: Option<Refusal> = Some(Refusal::ForGood);
    const REFUSED: Option<Refusal> = Some(Refusal::ForNow);
    for (status, lines, refusal) in [
        (429, "", REFUSED),
        (
            403,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 1800",
            REFUSED,
        ),
        (
            403,
            "x-ratelimit-remaining: 1 | x-ratelimit-reset: 1800",
            None,
        ),
        // The last call that the window admits.
        (
            404,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 1800",
            None,
        ),
        (
            200,
            "x-ratelimit-remaining: 0 | x-ratelimit-reset: 1800",
            None,
        ),
        (503, "retry-after: 3", REFUSED),
        (503, "retry-after: 0", None),
        (404, "retry-after: 0", None),
        (503, "retry-after: soon", None),
        (503, "", None),
        (429, "x-should-retry: false", FINAL),
        (429, "x-should-retry: False | retry-after: 3", FINAL),
        (429, "x-should-retry: true", REFUSED),
        (429, "stripe-should-retry: false", FINAL),
        (500, "x-should-retry: false", None),
        (500, "x-should-retry: true", None),
        (200, "grpc-status: 8", REFUSED),
        (200, "grpc-status: 8 | grpc-retry-pushback-ms: -1", FINAL),
        (200, "grpc-status: 8 | grpc-retry-pushback-ms: soon", FINAL),
        (200, "grpc-status: 14 | grpc-retry-pushback-ms: 5", REFUSED),
        (200, "grpc-status: 14", None),
    ] {
        assert_eq!(told_of(status, lines).refusal, refusal, "{status} {lines}");
    }
}

#[test]
fn a_pause_has_the_name_of_its_limit() {
    let names = |status, lines: &str| -> Vec<_> {
        let pauses = told_of(status, lines).pauses.into_iter();
        let named = pauses.map(|(name, pause)| (name.unwrap_or_default(), pause.as_secs()));
        named.collect()
    };
    let is = |name: &str, seconds| (name.to_owned(), seconds);
    let tokens = "x-ratelimit-remaining-tokens: 0 | x-ratelimit-reset-tokens: 6m0s";
    assert_eq!(names(200, tokens), [is("tokens", 360)]);
    // A refusal says its own time, and is about that window.
    assert_eq!(
        names(429, &format!("{tokens} | retry-after: 7")),
        [is("tokens", 7)]
    );
    assert_eq!(names(429, "retry-after: 7"), [is("", 7)]);
    assert_eq!(
        names(
            200,
            r#"ratelimit: "burst";r=0;t=2, day;r=0;t=30, "hour";r=1;t=9"#
        ),
        [is("burst", 2), is("day", 30)]
    );
    assert_eq!(
        names(429, "x-ratelimit-scope: global | retry-after: 65"),
        [is("global", 65)]
    );
    assert_eq!(
        names(
            200,
            "x-ratelimit-scope: user | x-ratelimit-remaining: 0 | x-ratelimit-reset-after: 4.5"
        ),
        [is("user", 4)]
    );
}

#[test]
fn the_dialects_of_an_application_have_precedence() {
    let field = HeaderName::from_static;
    let mut dialects = Dialects::default();
    let acme = Dialect::window(
        field("acme-left"),
        field("acme-end"),
        TimeUnit::EpochMilliseconds,
    );
    dialects.add(acme.named("calls"));
    dialects.add(Dialect::wait(field("retry-after"), TimeUnit::Milliseconds));
    dialects.add(Dialect::should_retry(field("acme-retry")));
    let read = |status, lines: &str| {
        let status = StatusCode::from_u16(status).unwrap();
        Told::read(status, &headers(lines), &dialects, DEFAULT)
    };
    let told = read(200, "acme-left: 0 | acme-end: 784111787000").unwrap();
    assert_eq!(
        told.pauses,
        [(Some("calls".to_owned()), Duration::from_secs(10))]
    );
    let told = read(429, "retry-after: 1500").unwrap();
    assert_eq!(told.pauses, [(None, Duration::from_millis(1_500))]);
    let told = read(429, "acme-retry: false").unwrap();
    assert_eq!(told.refusal, Some(Refusal::ForGood));
    assert!(read(200, "acme-other: 0").is_none());
    assert_eq!(
        read(200, "acme-left: many").unwrap().unread,
        [field("acme-left")]
    );
}

/// Each reader of a partner's text reports what it cannot read, and gives it no meaning.
#[test]
fn what_cannot_be_read_is_reported() {
    for lines in [
        "retry-after: soon",
        "retry-after: ",
        "retry-after: 3, soon",
        "retry-after: 1e9",
        "retry-after: 2026-11-28T10:04:00",
        "x-ms-retry-after-ms: 1,5s,?",
        "x-ratelimit-remaining: none | x-ratelimit-reset: 30",
        "x-ratelimit-remaining: -1 | x-ratelimit-reset: 30",
        "x-ratelimit-remaining: 0, 5 | x-ratelimit-reset: 30",
        "x-ratelimit-reset: later | x-ratelimit-remaining: 0",
        "ratelimit: nothing left",
        r#"ratelimit: "day";;r=0;t=30"#,
        r#"ratelimit: "day";r=x;t=30"#,
        r#"ratelimit: "day";r="0";t=30"#,
        r#"ratelimit: "day";r=0;t=?1"#,
        r#"ratelimit: "day";r=-1;t=30"#,
        r#"ratelimit: ("day");r=0;t=30"#,
        r#"ratelimit: "hour";r=1;t=9, ("day");r=0;t=30"#,
        "ratelimit: limit=10, remaining=0, reset=soon",
        "ratelimit: remaining=(0), reset=30",
        "ratelimit: remaining=0, reset=(30 60)",
        "x-should-retry: perhaps",
        "grpc-status: eight",
        "grpc-retry-pushback-ms: soon",
        "grpc-status-details-bin: ?",
        "grpc-status-details-bin: CAgSBHdhaXQa/w==",
    ] {
        let field: HeaderName = lines.split(':').next().unwrap().parse().unwrap();
        let told = told_of(429, lines);
        assert_eq!(told.unread, [field], "{lines}");
        assert_eq!(told.pauses, [(None, DEFAULT)], "{lines}");
        // Without a refusal, nothing is said.
        assert_eq!(told_of(200, lines).pauses, [], "{lines}");
    }
    for lines in [
        "retry-after: 0",
        "retry-after: -5",
        "retry-after: Sun, 06 Nov 1994 08:40:00 GMT",
        r#"ratelimit: "day";r=0"#,
        r#"ratelimit: "day";r=0;t=-30"#,
        "ratelimit: limit=10",
        "x-ratelimit-remaining: 0",
        "x-should-retry: true",
        "grpc-status: 8 | grpc-retry-pushback-ms: -1",
    ] {
        let unread = told_of(429, lines).unread;
        assert!(unread.is_empty(), "{lines}: {unread:?}");
    }
    // Other bytes than text, in each field, and in the date.
    for row in BUILT_IN.iter() {
        for field in row.dialect.fields() {
            let mut headers = HeaderMap::new();
            for field in row.dialect.fields() {
                headers.insert(field, HeaderValue::from_static("0"));
            }
            headers.insert(field, HeaderValue::from_bytes(b"\xff").unwrap());
            let told = told(StatusCode::OK, &headers);
            assert_eq!(told.unread, slice::from_ref(field), "{field}");
            assert_eq!((told.refusal, told.pauses), (None, Vec::new()), "{field}");
        }
    }
    let mut headers = headers("retry-after: 3");
    headers.insert("date", HeaderValue::from_static("today"));
    assert_eq!(told(StatusCode::OK, &headers).unread, ["date"]);
}

/// The table of the guide, and of the README.
#[test]
fn the_guide_has_each_dialect_with_its_source() {
    let unit = |unit| match unit {
        TimeUnit::Seconds => "seconds from now",
        TimeUnit::Milliseconds => "milliseconds from now",
        TimeUnit::EpochSeconds => "seconds since 1970",
        TimeUnit::EpochMilliseconds => "milliseconds since 1970",
        TimeUnit::BySize => "[by size](#numbers-and-times)",
    };
    let row = |row: &Row| {
        let fields = row.dialect.fields().map(|field| format!("`{field}`"));
        let (meaning, number) = match &row.dialect.0 {
            Form::Wait(_, of) => ("how long to wait".to_owned(), unit(*of)),
            Form::Structured(_) => ("windows, with their names".to_owned(), "seconds from now"),
            Form::Window { name, unit: of, .. } => {
                let name = name.as_ref().map(|name| format!(" `{name}`"));
                (format!("a window{}", name.unwrap_or_default()), unit(*of))
            }
            Form::ShouldRetry(_) => ("`false`: never repeat it".to_owned(), ""),
            Form::Scope(_) => ("the name of the limit".to_owned(), ""),
        };
        let sources = row.sources.iter();
        let sources = sources.map(|(partner, url)| format!("[{partner}]({url})"));
        let sources = sources.collect::<Vec<_>>().join(", ");
        let fields = fields.collect::<Vec<_>>().join(", ");
        format!("| {fields} | {meaning} | {number} | {sources} |\n")
    };
    let head = "| fields | meaning | a bare number is | source |\n|---|---|---|---|\n";
    let table = head.to_owned() + &BUILT_IN.iter().map(row).collect::<String>();
    let guide = include_str!("../../../../docs/outbound.md");
    assert!(guide.contains(&table), "docs/outbound.md lacks\n{table}");
    // The package's own page, where the guide's section is a link.
    let section =
        "https://docs.rs/tower-throttle/0.1/tower_throttle/guides/outbound/#numbers-and-times";
    let table = table.replace("#numbers-and-times", section);
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&table), "the README lacks\n{table}");
}

#[test]
fn each_field_of_a_dialect_is_looked_for() {
    for field in BUILT_IN.iter().flat_map(|row| row.dialect.fields()) {
        assert!(Dialects::default().may_have(field), "{field}");
    }
    assert!(!Dialects::default().may_have(&HeaderName::from_static("x-request-id")));
}

#[test]
fn no_bytes_of_a_partner_crash() {
    let fields = BUILT_IN
        .iter()
        .flat_map(|row| row.dialect.fields())
        .cloned();
    let others = [
        "date",
        "grpc-status",
        "grpc-status-details-bin",
        "grpc-retry-pushback-ms",
    ];
    let names: Vec<_> = fields.chain(others.map(HeaderName::from_static)).collect();
    let value = prop_oneof![
        vec(any::<u8>(), 0..80),
        "[-0-9.eE+;=\",rt ]{0,20}".prop_map(String::into_bytes),
        "[-0-9.:TZPhms+, ]{0,30}".prop_map(String::into_bytes),
        Just(b"0".to_vec()),
    ];
    let details = vec(any::<u8>(), 0..60).prop_map(|bytes| STANDARD.encode(bytes).into_bytes());
    let field = (proptest::sample::select(names), prop_oneof![value, details]);
    proptest!(|(fields in vec(field, 0..8), status in 100_u16..600)| {
        let mut headers = HeaderMap::new();
        for (name, value) in &fields {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(name, value);
            }
        }
        let status = StatusCode::from_u16(status).unwrap();
        let told = told(status, &headers);
        prop_assert!(told.pauses.iter().all(|(_, pause)| !pause.is_zero()));
        prop_assert!(told.refusal.is_none() || !told.pauses.is_empty());
        prop_assert_eq!(status == 429 && told.refusal.is_none(), false);
    });
}
