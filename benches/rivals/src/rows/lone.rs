//! One request at a time on Redis: what the layer adds to a round trip.

use super::redis::{TRL_REDIS, trl_redis};
use crate::{
    ask::Get,
    callers::{Callers, MANY},
    measured::{ROUND, in_turns},
    on_redis::{Stage, Work},
    peers::{Ours, Rate},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let stage = Stage::new(None);
    let ours = stage.allowed(stage.ours(Ours::new(Rate::Ample)));
    let trl_redis = trl_redis(&stage);
    let get = Get(stage.client());
    let work = Work {
        length: ROUND,
        in_flight: 1,
        callers: Callers::Each(MANY),
    };
    let [ours, get, trl_redis] = in_turns([
        &|| stage.round(&work, &ours),
        &|| stage.round(&work, &get),
        &|| stage.round(&work, &trl_redis),
    ]);
    let name = "Redis: 100,000 callers, 1 in flight";
    table.add(Row::speed(name, ours, ("GET through fred", get)).p50_at_most(1.1));
    table.add(Row::speed(name, ours, (TRL_REDIS, trl_redis)));
}
