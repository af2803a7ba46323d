//! One caller whom everybody asks about, far from its limit.

use crate::{
    callers::Callers,
    measured::{ROUND, best, in_turns},
    on_redis::{Stage, Work},
    peers::{Rate, trl_fred},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let stage = Stage::new(None);
    let ours = stage.allowed(stage.ours(1, Rate::Ample, 1));
    let one = stage.allowed(trl_fred(stage.client(), Rate::Ample));
    let pool = stage.allowed(trl_fred(stage.pool(4), Rate::Ample));
    let work = Work {
        length: ROUND,
        in_flight: 256,
        callers: Callers::one_at_a_time(),
    };
    let [ours, one, pool] = in_turns([
        &|| stage.round(&work, &ours),
        &|| stage.round(&work, &one),
        &|| stage.round(&work, &pool),
    ]);
    let name = "Redis: one hot caller, allowed, 256 in flight";
    let rival = best(&[("trl-fred, 1 client", one), ("trl-fred, pool of 4", pool)]);
    table.add(Row::speed(name, ours, rival).at_least(5.0));
    let calls = ("trl-fred", one.redis.calls * 1_000.0);
    let name = format!("{name}: script calls per 1,000 requests");
    table.add(Row::cost(name, "", ours.redis.calls * 1_000.0, calls));
}
