//! What it costs to settle a request when it has ended.

use tower_throttle::{Outcome, Settle};

use crate::{
    callers::{Callers, MANY},
    measured::{Measured, ROUND, in_turns},
    on_redis::{Stage, Work},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    // Each has a server of its own, because all have the same buckets.
    let stages = [(); 3].map(|()| Stage::new(None));
    let [plain, charged, released] = &stages;
    let asked = (
        plain.allowed(plain.ours_with(|policy| policy)),
        charged
            .allowed(charged.ours_with(|policy| policy.settle_by(|_: &Outcome<'_>| Settle::Full))),
        released.allowed(
            released.ours_with(|policy| policy.settle_by(|_: &Outcome<'_>| Settle::Release)),
        ),
    );
    for in_flight in [1, 64, 256] {
        let work = Work {
            length: ROUND,
            in_flight,
            callers: Callers::Each(MANY),
        };
        let [plain, charged, released] = in_turns([
            &|| plain.round(&work, &asked.0),
            &|| charged.round(&work, &asked.1),
            &|| released.round(&work, &asked.2),
        ]);
        let mut add = |what: &str, ours: Measured| {
            let name = format!("Redis: {what}, {in_flight} in flight");
            table.add(Row::speed(&name, ours, ("charged at once", plain)));
            let cpu = format!("{name}: CPU time of the server for one request");
            let beside = ("charged at once", plain.redis.cpu_us);
            table.add(Row::cost(cpu, " µs", ours.redis.cpu_us, beside));
        };
        add("held, then charged", charged);
        add("held, then released", released);
    }
}
