//! One caller that is over its limit, and sends more and more requests.

use std::hint::black_box;

use axum::http::StatusCode;
use governor::clock::DefaultClock;
use tokio::runtime::Builder;
use tower::Layer;
use tower_governor::key_extractor::PeerIpKeyExtractor;

use super::{ONE_OR_POOL, threads};
use crate::{
    callers::{Callers, address},
    measured::{Measured, ROUND, SHORT, best, in_turns},
    on_redis::{Stage, Work},
    on_threads::{call, round},
    one_clock::OneClockLayer,
    peers::{Ours, Rate, axum_governor, in_memory, inner, tower_governor, trl_fred},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    // A cached denial does not need Redis, so all cores serve requests.
    on_redis(table, 1);
    on_redis(table, 2);
    in_this_process(table);
}

fn on_redis(table: &mut Table, client_threads: usize) {
    let mut runtime = Builder::new_multi_thread();
    let stage = Stage::on(runtime.worker_threads(client_threads), None);
    let ours = stage.ours(Ours::new(Rate::Once));
    let one = trl_fred(stage.client(), Rate::Once);
    let pool = trl_fred(stage.pool(4), Rate::Once);
    // Then the caller has used up its quota. Both of the rival's clients use the same key.
    stage.each(1, 0..1, &stage.allowed(&ours));
    stage.each(1, 0..1, &stage.allowed(&one));
    let (ours, one, pool) = (stage.denied(ours), stage.denied(one), stage.denied(pool));
    let work = Work {
        length: ROUND,
        in_flight: 64,
        callers: Callers::Each(1),
    };
    let [ours, one, pool] = in_turns([
        &|| stage.round(&work, &ours),
        &|| stage.round(&work, &one),
        &|| stage.round(&work, &pool),
    ]);
    let threads = threads(client_threads);
    let name = format!("Redis: one caller, denied, 64 in flight, {threads}");
    let rival = (ONE_OR_POOL, best([one, pool]));
    table.add(Row::speed(&name, ours, rival).at_least(20.0));
    let calls = ("trl-fred", one.redis.calls * 1_000.0);
    let name = format!("{name}: script calls per 1,000 denials");
    let row = Row::cost(name, "", ours.redis.calls * 1_000.0, calls);
    table.add(row.ours_below(1.0));
}

fn in_this_process(table: &mut Table) {
    let ours = in_memory(Rate::Once, 1).layer(inner());
    let tower = tower_governor(PeerIpKeyExtractor, Rate::Once).layer(inner());
    let axum = axum_governor(axum_governor::PeerIp::default(), Rate::Once);
    let axum = axum.layer(inner());
    let governor = OneClockLayer::new(Rate::Once).layer(inner());
    for _ in 0..2 {
        let headers = [call(&governor, address(1)), call(&tower, address(1))]
            .map(|response| response.headers().keys().cloned().collect::<Vec<_>>());
        assert_eq!(headers[0], headers[1], "the same headers");
    }
    macro_rules! ask {
        ($service:expr) => {{
            let admitted = call(&$service, address(0));
            assert_eq!(admitted.status(), StatusCode::OK);
            |caller| {
                let denied = call(&$service, address(caller));
                assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
            }
        }};
    }
    let (ours, tower, axum) = (ask!(ours), ask!(tower), ask!(axum));
    let governor = ask!(governor);
    let one = Callers::Each(1);
    let name = |number| format!("memory: one caller, denied, {}", threads(number));
    for number in [1, 2] {
        let [ours, tower, axum, governor] = in_turns([
            &|| round(SHORT, number, &one, ours),
            &|| round(SHORT, number, &one, tower),
            &|| round(SHORT, number, &one, axum),
            &|| round(SHORT, number, &one, governor),
        ]);
        let name = name(number);
        table.add(Row::speed(&name, ours, ("tower_governor", tower)).at_least(10.0));
        table.add(Row::speed(&name, ours, ("axum-governor", axum)));
        table.add(Row::speed(&name, ours, ("governor, one clock", governor)));
    }
    let clock = |_| drop(black_box(DefaultClock::default()));
    let [ours, clock] = in_turns([&|| round(SHORT, 1, &one, ours), &|| {
        round(SHORT, 1, &one, clock)
    }]);
    let us = |measured: Measured| 1e6 / measured.ops_per_s;
    let name = format!("{}: time of a denial", name(1));
    let clock = ("making governor's clock alone", us(clock));
    table.add(Row::cost(name, " µs", us(ours), clock));
}
