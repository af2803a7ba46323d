use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::{collection::vec, prelude::*};

use super::pause;

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

#[track_caller]
fn assert_pauses(rows: &[(u16, &str, Option<u64>)]) {
    for (status, lines, expected_ms) in rows {
        let status = StatusCode::from_u16(*status).unwrap();
        let pause = pause(status, &headers(lines), DEFAULT);
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
        let pause = pause(StatusCode::OK, &fields, DEFAULT);
        assert_eq!(pause, Some(Duration::from_secs(expected)), "{reset}");
    }
    fields.insert("x-ratelimit-reset", HeaderValue::from_static("1699999999"));
    assert_eq!(pause(StatusCode::OK, &fields, DEFAULT), None, "it is past");
    fields.remove("date");
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3_600);
    fields.insert("x-ratelimit-reset", soon.as_secs().into());
    let pause = pause(StatusCode::OK, &fields, DEFAULT).unwrap();
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
fn no_bytes_of_a_partner_crash() {
    let names = prop_oneof![
        Just("retry-after"),
        Just("retry-after-ms"),
        Just("ratelimit"),
        Just("date"),
        Just("ratelimit-remaining"),
        Just("ratelimit-reset"),
        Just("x-ratelimit-remaining"),
        Just("x-ratelimit-reset"),
        Just("grpc-status"),
        Just("grpc-status-details-bin"),
        Just("grpc-retry-pushback-ms"),
    ];
    let value = prop_oneof![
        vec(any::<u8>(), 0..80),
        "[-0-9.eE+;=\",rt ]{0,20}".prop_map(String::into_bytes)
    ];
    let details = vec(any::<u8>(), 0..60).prop_map(|bytes| STANDARD.encode(bytes).into_bytes());
    let field = (names, prop_oneof![value, details]);
    proptest!(|(fields in vec(field, 0..8), status in 100_u16..600)| {
        let mut headers = HeaderMap::new();
        for (name, value) in &fields {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.append(*name, value);
            }
        }
        let status = StatusCode::from_u16(status).unwrap();
        let pause = pause(status, &headers, DEFAULT);
        prop_assert!(pause.is_none_or(|pause| !pause.is_zero()));
        prop_assert_eq!(status == 429 && pause.is_none(), false);
    });
}
