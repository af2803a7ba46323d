//! The whole layer in this process, with its headers on.

use axum::http::StatusCode;
use tower::Layer;
use tower_governor::key_extractor::PeerIpKeyExtractor;

use super::threads;
use crate::{
    callers::{Callers, MANY, address},
    measured::{SHORT, in_turns},
    on_threads::{call, round},
    peers::{Rate, axum_governor, in_memory, inner, tokio_rate_limit, tower_governor},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let ours = in_memory(Rate::Ample, 1).layer(inner());
    let tower = tower_governor(PeerIpKeyExtractor, Rate::Ample).layer(inner());
    let axum = axum_governor(axum_governor::PeerIp::default(), Rate::Ample);
    let axum = axum.layer(inner());
    let tokio = tokio_rate_limit(Rate::Ample).layer(inner());
    assert_tokio_rate_limit_decides();
    let addresses: Vec<_> = (0..MANY).map(address).collect();
    macro_rules! ask {
        ($service:expr) => {{
            let ask = |caller: usize| {
                let allowed = call(&$service, addresses[caller]);
                assert_eq!(allowed.status(), StatusCode::OK);
            };
            // From here on each caller has a bucket.
            (0..MANY).for_each(ask);
            ask
        }};
    }
    let (ours, tower, axum) = (ask!(ours), ask!(tower), ask!(axum));
    let tokio = ask!(tokio);
    for (who, callers) in [("100,000 callers", MANY), ("one caller", 1)] {
        let callers = Callers::Each(callers);
        for number in [1, 2] {
            let [ours, tower, axum, tokio] = in_turns([
                &|| round(SHORT, number, &callers, ours),
                &|| round(SHORT, number, &callers, tower),
                &|| round(SHORT, number, &callers, axum),
                &|| round(SHORT, number, &callers, tokio),
            ]);
            let name = format!("memory: {who}, allowed, {}", threads(number));
            for beside in [
                ("tower_governor", tower),
                ("axum-governor", axum),
                ("tokio-rate-limit", tokio),
            ] {
                let row = Row::speed(&name, ours, beside);
                table.add(match callers {
                    Callers::Each(MANY) => row.at_least(1.5),
                    _ => row,
                });
            }
        }
    }
}

/// Asserts that it sets its headers, and denies a caller whose quota is used up. Each second it
/// admits another request.
fn assert_tokio_rate_limit_decides() {
    let service = tokio_rate_limit(Rate::Once).layer(inner());
    let allowed = call(&service, address(0));
    assert_eq!(allowed.status(), StatusCode::OK);
    assert_eq!(allowed.headers()["ratelimit-remaining"], "0");
    let mut more = (0..1_000).map(|_| call(&service, address(0)).status());
    assert!(more.any(|status| status == StatusCode::TOO_MANY_REQUESTS));
}
