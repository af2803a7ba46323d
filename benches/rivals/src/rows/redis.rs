//! Many callers on Redis, each far from its limit, beside limiters with other clients.

use crate::{
    ask::Ask,
    callers::{Callers, MANY},
    measured::{ROUND, best, in_turns},
    on_redis::{Stage, Work},
    peers::{self, Ours, Rate, trl_fred},
    table::{Row, Table},
};

pub const TRL_REDIS: &str = "trl-redis, 1 connection";

pub fn rows(table: &mut Table) {
    let stage = Stage::new(None);
    let ours_1 = stage.allowed(stage.ours(Ours::new(Rate::Ample)));
    let of_4 = Ours {
        connections: 4,
        ..Ours::new(Rate::Ample)
    };
    let ours_4 = stage.allowed(stage.ours(of_4));
    let trl_redis = trl_redis(&stage);
    let pool = |connections| stage.allowed(trl_fred(stage.pool(connections), Rate::Ample));
    let pools = [2, 4, 8].map(pool);
    for in_flight in [64, 256] {
        let work = Work {
            length: ROUND,
            in_flight,
            callers: Callers::Each(MANY),
        };
        let [ours_1, ours_4, trl_redis, of_2, of_4, of_8] = in_turns([
            &|| stage.round(&work, &ours_1),
            &|| stage.round(&work, &ours_4),
            &|| stage.round(&work, &trl_redis),
            &|| stage.round(&work, &pools[0]),
            &|| stage.round(&work, &pools[1]),
            &|| stage.round(&work, &pools[2]),
        ]);
        let pool = (
            "trl-fred, best of pools of 2, 4 and 8",
            best([of_2, of_4, of_8]),
        );
        let name = format!("Redis: 100,000 callers, {in_flight} in flight");
        table.add(Row::speed(&name, ours_1, (TRL_REDIS, trl_redis)));
        let row = Row::speed(&name, ours_1, pool).p50_lower();
        table.add(match in_flight {
            64 => row.at_least(1.6),
            _ => row.p99_lower().at_least(2.0),
        });
        table.add(Row::speed(format!("{name}, 4 connections"), ours_4, pool));
    }
}

/// Returns requests that tower-rate-limit-redis should admit, after it has denied one whose
/// quota was used up.
pub fn trl_redis(stage: &Stage) -> impl Ask + use<> {
    let connection = stage.redis_rs();
    let once = peers::trl_redis(connection.clone(), Rate::Once);
    stage.each(1, 0..1, &stage.allowed(once.clone()));
    stage.each(1, 0..1, &stage.denied(once));
    stage.allowed(peers::trl_redis(connection, Rate::Ample))
}
