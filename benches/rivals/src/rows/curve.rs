//! How speed changes with the number of requests in flight on Redis, beside the rival as it comes
//! and with TCP_NODELAY, as here.

use crate::{
    callers::{Callers, MANY},
    measured::{SHORT, in_turns},
    on_redis::{Stage, Work},
    peers::{Ours, Rate, trl_fred},
    table::{Row, Table},
};

const IN_FLIGHT: [usize; 14] = [1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 64, 256, 1_024];

pub fn rows(table: &mut Table) {
    let stage = Stage::new(None);
    let ours = stage.allowed(stage.ours(Ours::new(Rate::Ample)));
    let default = stage.allowed(trl_fred(stage.client(), Rate::Ample));
    let nodelay = stage.allowed(trl_fred(stage.client_with_nodelay(), Rate::Ample));
    for in_flight in IN_FLIGHT {
        let work = Work {
            length: SHORT,
            in_flight,
            callers: Callers::Each(MANY),
        };
        let [ours, default, nodelay] = in_turns([
            &|| stage.round(&work, &ours),
            &|| stage.round(&work, &default),
            &|| stage.round(&work, &nodelay),
        ]);
        let name = format!("curve: Redis, {in_flight} in flight");
        let row = Row::speed(&name, ours, ("trl-fred, 1 client", default));
        table.add(match in_flight {
            64 => row.p50_lower().at_least(1.6),
            256 => row.p50_lower().p99_lower().at_least(2.2),
            _ => row,
        });
        let beside = ("trl-fred, 1 client, TCP_NODELAY", nodelay);
        table.add(Row::speed(&name, ours, beside));
        let calls = ("trl-fred", default.redis.calls * 1_000.0);
        let name = format!("{name}: script calls per 1,000 requests");
        table.add(Row::cost(name, "", ours.redis.calls * 1_000.0, calls));
    }
}
