//! Many callers on Redis, each far from its limit.

use crate::{
    callers::{Callers, MANY},
    measured::{ROUND, best, in_turns},
    on_redis::{Stage, Work},
    peers::{Ours, Rate, trl_fred},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let stage = Stage::new(None);
    let ours_1 = stage.allowed(stage.ours(Ours::new(Rate::Ample)));
    let of_4 = Ours {
        connections: 4,
        ..Ours::new(Rate::Ample)
    };
    let ours_4 = stage.allowed(stage.ours(of_4));
    let one = stage.allowed(trl_fred(stage.client(), Rate::Ample));
    let pool = |connections| stage.allowed(trl_fred(stage.pool(connections), Rate::Ample));
    let pools = [2, 4, 8].map(pool);
    for in_flight in [64, 256] {
        let work = Work {
            length: ROUND,
            in_flight,
            callers: Callers::Each(MANY),
        };
        let [ours_1, ours_4, one, of_2, of_4, of_8] = in_turns([
            &|| stage.round(&work, &ours_1),
            &|| stage.round(&work, &ours_4),
            &|| stage.round(&work, &one),
            &|| stage.round(&work, &pools[0]),
            &|| stage.round(&work, &pools[1]),
            &|| stage.round(&work, &pools[2]),
        ]);
        let pool = best(&[
            ("trl-fred, pool of 2", of_2),
            ("trl-fred, pool of 4", of_4),
            ("trl-fred, pool of 8", of_8),
        ]);
        let name = format!("Redis: 100,000 callers, {in_flight} in flight");
        let one_client = ("trl-fred, 1 client", one);
        let row = Row::speed(&name, ours_1, one_client).p50_lower();
        table.add(match in_flight {
            64 => row.at_least(1.6),
            _ => row.p99_lower().at_least(2.2),
        });
        let row = Row::speed(&name, ours_1, pool).p50_lower();
        table.add(match in_flight {
            64 => row.at_least(1.6),
            _ => row.p99_lower().at_least(2.0),
        });
        table.add(Row::speed(format!("{name}, 4 connections"), ours_4, pool));
        let calls = |calls: f64| calls * 1_000.0;
        let name = format!("{name}: script calls per 1,000 requests");
        let beside = ("trl-fred", calls(one.redis.calls));
        table.add(Row::cost(name, "", calls(ours_1.redis.calls), beside));
    }
}
