//! Responses as partners send them, and calls to a partner that sends them.

use std::{mem, time::Duration};

use http::Request;
use tokio::{task::JoinSet, time::sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Limiter, MemoryStore, Pause, Policy};
use tower_throttle_client::OutboundLayer;

use super::partner::{Partner, TokioClock, answer};

/// A response: its partner, its status and fields, and the time until which it wants no calls.
pub(crate) type Recorded = (
    &'static str,
    u16,
    &'static [(&'static str, &'static str)],
    Duration,
);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The time at which all of them were sent.
const DATE: (&str, &str) = ("date", "Sat, 28 Nov 2026 10:00:00 GMT");

pub(crate) const RECORDED: &[Recorded] = &[
    (
        "OpenAI, requests",
        429,
        &[
            DATE,
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "8.64s"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        ms(8_640),
    ),
    (
        "OpenAI, tokens",
        200,
        &[
            DATE,
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        ms(360_000),
    ),
    (
        "Azure OpenAI",
        429,
        &[DATE, ("retry-after-ms", "2440"), ("retry-after", "2")],
        ms(2_440),
    ),
    (
        "Azure Cosmos DB",
        429,
        &[DATE, ("x-ms-retry-after-ms", "27500")],
        ms(27_500),
    ),
    (
        "Anthropic",
        429,
        &[
            DATE,
            ("anthropic-ratelimit-requests-limit", "4000"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-28T10:00:10Z"),
            ("anthropic-ratelimit-tokens-remaining", "312000"),
            ("anthropic-ratelimit-tokens-reset", "2026-11-28T10:01:00Z"),
        ],
        ms(10_000),
    ),
    (
        "Google, gRPC",
        200,
        &[
            DATE,
            ("grpc-status", "8"),
            // RetryInfo of 12 s.
            (
                "grpc-status-details-bin",
                "CAgaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIDA",
            ),
        ],
        ms(12_000),
    ),
    (
        "GitHub",
        403,
        &[
            DATE,
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1795860030"),
        ],
        ms(30_000),
    ),
    (
        "GitLab",
        429,
        &[
            DATE,
            ("ratelimit-limit", "60"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "1795860030"),
        ],
        ms(30_000),
    ),
    ("Slack", 429, &[DATE, ("retry-after", "30")], ms(30_000)),
    ("Shopify", 429, &[DATE, ("retry-after", "2.0")], ms(2_000)),
    (
        "Discord",
        200,
        &[
            DATE,
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1795860004.5"),
            ("x-ratelimit-reset-after", "4.5"),
        ],
        ms(4_500),
    ),
    (
        "Reddit",
        200,
        &[
            DATE,
            ("x-ratelimit-remaining", "0.0"),
            ("x-ratelimit-reset", "117"),
        ],
        ms(117_000),
    ),
    (
        "X",
        429,
        &[
            DATE,
            ("x-rate-limit-remaining", "0"),
            ("x-rate-limit-reset", "1795860030"),
        ],
        ms(30_000),
    ),
    (
        "Atlassian",
        429,
        &[
            DATE,
            ("ratelimit", "\"tenant-app-quota\";r=0;t=278"),
            ("x-ratelimit-remaining", "399"),
        ],
        ms(278_000),
    ),
    (
        "Mastodon",
        429,
        &[
            DATE,
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "2026-11-28T10:04:00.000Z"),
        ],
        ms(240_000),
    ),
    (
        "Zoom",
        429,
        &[
            DATE,
            ("x-ratelimit-remaining", "0"),
            ("retry-after", "2026-11-28T10:02:00Z"),
        ],
        ms(120_000),
    ),
    (
        "Linear",
        200,
        &[
            DATE,
            ("x-ratelimit-requests-remaining", "0"),
            ("x-ratelimit-requests-reset", "1795860030000"),
        ],
        ms(30_000),
    ),
    (
        "HubSpot",
        200,
        &[
            DATE,
            ("x-hubspot-ratelimit-remaining", "0"),
            ("x-hubspot-ratelimit-interval-milliseconds", "10000"),
        ],
        ms(10_000),
    ),
    (
        "Brave",
        200,
        &[
            DATE,
            ("x-ratelimit-remaining", "0, 1000"),
            ("x-ratelimit-reset", "1, 1419704"),
        ],
        ms(1_000),
    ),
    (
        "Bucket4j",
        429,
        &[DATE, ("x-rate-limit-retry-after-seconds", "37")],
        ms(37_000),
    ),
    (
        "MailerLite",
        429,
        &[DATE, ("x-ratelimit-retry-after", "59")],
        ms(59_000),
    ),
    (
        "Symfony",
        429,
        &[DATE, ("x-ratelimit-retry-after", "1795860059")],
        ms(59_000),
    ),
    (
        "IETF, draft 7, on two lines",
        200,
        &[
            DATE,
            ("ratelimit", "limit=10, remaining=0"),
            ("ratelimit", "reset=7"),
        ],
        ms(7_000),
    ),
    (
        "IETF, draft 11",
        200,
        &[DATE, ("ratelimit", "\"hour\";r=0;t=300")],
        ms(300_000),
    ),
];

/// Ten workers call, as often as they may, until some time after the pause that the first response asks
/// for. Returns how many calls came within that pause, and how many in all.
pub(crate) async fn calls((_, status, fields, pause): &Recorded) -> (usize, usize) {
    let (status, fields) = (*status, *fields);
    let mut is_first = true;
    let partner = Partner::new(move |_| match mem::take(&mut is_first) {
        true => answer(status, fields),
        false => answer(204, &[]),
    });
    let store = MemoryStore::builder().clock(TokioClock::new()).build();
    let limiter = Limiter::new(store, Policy::new("pauses", Pause));
    let layer = OutboundLayer::new(limiter).expect("a pause");
    let calling = partner.clone();
    let client = layer.layer(service_fn(move |request| calling.clone().call(request)));
    let call = move || {
        let request = Request::get("https://partner.example/").body(());
        client.clone().oneshot(request.expect("a request"))
    };
    let _ = call().await;
    let mut workers = JoinSet::new();
    for _ in 0..10 {
        let call = call.clone();
        workers.spawn(async move {
            loop {
                let _ = call().await;
                sleep(Duration::from_millis(500)).await;
            }
        });
    }
    sleep(*pause + Duration::from_secs(1)).await;
    workers.abort_all();
    let (first, later) = (partner.calls(status), partner.calls(204));
    let at = first.first().copied().unwrap_or_default();
    let is_inside = |call: &&Duration| **call - at < *pause;
    (later.iter().filter(is_inside).count(), 1 + later.len())
}
