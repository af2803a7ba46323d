//! How speed changes with the number of policies.

use axum::http::StatusCode;
use tower::Layer;
use tower_governor::key_extractor::PeerIpKeyExtractor;

use crate::{
    callers::{Callers, MANY, address},
    measured::{SHORT, in_turns},
    on_redis::{Stage, Work},
    on_threads::{call, round},
    peers::{Ours, Rate, in_memory, inner, tower_governor, two_trl_fred},
    table::{Row, Table},
};

const POLICIES: [usize; 4] = [1, 2, 4, 8];

pub fn rows(table: &mut Table) {
    policies_on_redis(table);
    policies_in_memory(table);
}

fn policies_on_redis(table: &mut Table) {
    let stage = Stage::new(None);
    let layer = |policies| {
        stage.allowed(stage.ours(Ours {
            policies,
            ..Ours::new(Rate::Ample)
        }))
    };
    let ours = POLICIES.map(layer);
    let work = work(256);
    let [one, two, four, eight] = in_turns([
        &|| stage.round(&work, &ours[0]),
        &|| stage.round(&work, &ours[1]),
        &|| stage.round(&work, &ours[2]),
        &|| stage.round(&work, &ours[3]),
    ]);
    for (policies, measured) in POLICIES.into_iter().zip([one, two, four, eight]).skip(1) {
        let name = format!("growth: Redis, 256 in flight, {policies} policies");
        table.add(Row::speed(name, measured, ("1 policy", one)));
    }
    let rival = stage.allowed(two_trl_fred(stage.client(), Rate::Ample));
    for in_flight in [1, 256] {
        let work = self::work(in_flight);
        let [ours, rival] = in_turns([&|| stage.round(&work, &ours[1]), &|| {
            stage.round(&work, &rival)
        }]);
        let name = format!("growth: Redis, {in_flight} in flight, 2 policies");
        table.add(Row::speed(name, ours, ("trl-fred, 2 layers", rival)));
    }
}

fn policies_in_memory(table: &mut Table) {
    let service = |policies| in_memory(Rate::Ample, policies).layer(inner());
    let services = POLICIES.map(service);
    let ask = |of: usize| {
        let service = &services[of];
        move |caller| {
            let allowed = call(service, address(caller));
            assert_eq!(allowed.status(), StatusCode::OK);
        }
    };
    // From here on each caller has its buckets.
    (0..POLICIES.len()).for_each(|of| (0..MANY).for_each(ask(of)));
    let each = Callers::Each(MANY);
    let [one, two, four, eight] = in_turns([
        &|| round(SHORT, 1, &each, ask(0)),
        &|| round(SHORT, 1, &each, ask(1)),
        &|| round(SHORT, 1, &each, ask(2)),
        &|| round(SHORT, 1, &each, ask(3)),
    ]);
    for (policies, measured) in POLICIES.into_iter().zip([one, two, four, eight]).skip(1) {
        let name = format!("growth: memory, 1 thread, {policies} policies");
        table.add(Row::speed(name, measured, ("1 policy", one)));
    }
    let layer = || tower_governor(PeerIpKeyExtractor, Rate::Ample);
    let two_layers = layer().layer(layer().layer(inner()));
    let rival = |caller| {
        let allowed = call(&two_layers, address(caller));
        assert_eq!(allowed.status(), StatusCode::OK);
    };
    (0..MANY).for_each(rival);
    let [two, rival] = in_turns([&|| round(SHORT, 1, &each, ask(1)), &|| {
        round(SHORT, 1, &each, rival)
    }]);
    let name = "growth: memory, 1 thread, 2 policies";
    table.add(Row::speed(name, two, ("tower_governor, 2 layers", rival)));
}

fn work(in_flight: usize) -> Work {
    Work {
        length: SHORT,
        in_flight,
        callers: Callers::Each(MANY),
    }
}
