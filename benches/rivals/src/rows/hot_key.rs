//! One caller of all requests, far from its limit.

use super::ONE_OR_POOL;
use crate::{
    callers::Callers,
    measured::{ROUND, best, in_turns},
    on_redis::{Stage, Work},
    peers::{Ours, Rate, trl_fred},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let stage = Stage::new(None);
    let ours = stage.allowed(stage.ours(Ours::new(Rate::Ample)));
    // No burst of the rival would last for a round, so its caller changes.
    let vast = Ours::new(Rate::Vast);
    let stage_of_leased = Stage::new(None);
    let leased = stage_of_leased.allowed(stage_of_leased.ours(Ours {
        leases: true,
        ..vast
    }));
    let one = stage.allowed(trl_fred(stage.client(), Rate::Ample));
    let pool = stage.allowed(trl_fred(stage.pool(4), Rate::Ample));
    let work = Work {
        length: ROUND,
        in_flight: 256,
        callers: Callers::one_at_a_time(),
    };
    let of_leased = Work {
        callers: Callers::Each(1),
        ..work.clone()
    };
    let [ours, leased, one, pool] = in_turns([
        &|| stage.round(&work, &ours),
        &|| stage_of_leased.round(&of_leased, &leased),
        &|| stage.round(&work, &one),
        &|| stage.round(&work, &pool),
    ]);
    let name = "Redis: one hot caller, allowed, 256 in flight";
    let rival = (ONE_OR_POOL, best([one, pool]));
    table.add(Row::speed(name, ours, rival).at_least(5.0));
    let name = format!("{name}, leased");
    table.add(Row::speed(name, leased, rival).at_least(20.0));
}
