//! What a decision costs the Redis server itself.

use crate::{
    ask::{Bucket, RedisCell, TwoKeys},
    callers::{Callers, MANY},
    cargo,
    measured::{Measured, ROUND, in_turns},
    on_redis::{Stage, Work},
    peers::{Ours, Rate},
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let module = cargo::redis_cell();
    let stage = Stage::new(module.as_deref());
    let bucket = Rate::Ample.bucket();
    let client = stage.client();
    let ours = stage.allowed(stage.ours(Ours::new(Rate::Ample)));
    // Whole tokens flow in, as in Spring, because parts of a token would be longer to write.
    let whole = Bucket {
        seconds: 1,
        ..bucket
    };
    let two_keys = stage.run(TwoKeys::new(client.clone(), whole));
    let cell = RedisCell { client, bucket };
    let work = Work {
        length: ROUND,
        in_flight: 256,
        callers: Callers::Each(MANY),
    };
    let ours = || stage.round(&work, &ours);
    let two_keys = || stage.round(&work, &two_keys);
    let cell = || stage.round(&work, &cell);

    let name = "Redis: CPU time of the server for one decision, 256 in flight";
    let mut add = |ours: Measured, who: &str, beside: Measured, most| {
        let beside_us = (who, beside.redis.cpu_us);
        let row = Row::cost(name, " µs", ours.redis.cpu_us, beside_us);
        table.add(row.times(ours, beside).at_most(most));
    };
    let (ours, two_keys) = if module.is_some() {
        let [ours, two_keys, cell] = in_turns([&ours, &two_keys, &cell]);
        add(ours, "redis-cell", cell, 1.0);
        (ours, two_keys)
    } else {
        eprintln!("redis-cell could not be built: left out");
        in_turns([&ours, &two_keys]).into()
    };
    add(ours, "two keys, as in Spring", two_keys, 0.5);
}
