//! What the script costs the Redis server, beside other scripts that were tried, and beside the
//! least that any script could cost.

use crate::{
    callers::{Callers, MANY},
    measured::{Measured, SHORT, in_turns},
    on_redis::{Stage, Work},
    scripts::{ADDED, Calls, DIGITS, EMPTY, FLOOR, HASH, MGET, PACKED, TWO_KEYS, engine, variant},
    table::{Row, Table},
};

/// As many as the store has on each connection.
const CALLS_IN_FLIGHT: usize = 3;

pub fn rows(table: &mut Table) {
    let all = [
        ("engine", engine()),
        ("no command", variant(EMPTY)),
        ("floor: GET, PSETEX", variant(FLOOR)),
        ("a bucket: GET, INCRBY, PEXPIREAT", variant(ADDED)),
        ("a bucket: MGET, INCRBY, PEXPIREAT", variant(MGET)),
        ("a bucket: GET, PSETEX", variant(DIGITS)),
        ("a bucket in ten bytes: GET, PSETEX", variant(PACKED)),
        ("a bucket in a hash: HMGET, HSET, PEXPIRE", variant(HASH)),
        ("a bucket in two keys: 2 GET, 2 SETEX", variant(TWO_KEYS)),
    ];
    let some = [0, 1, 2, 3, 5, 6].map(|place: usize| all[place].clone());
    let plain = [0, 1, 2].map(|place: usize| all[place].clone());
    let name = "Lua: CPU time of the server for one decision";
    for checks in [1, 16, 128] {
        let name = format!("{name}, {checks} in a call");
        row(table, &name, &all, checks, |calls| calls);
    }
    let of_new = format!("{name}, 128 in a call, callers who are new");
    row(table, &of_new, &some, 128, Calls::of_newcomers);
    let of_two = format!("{name} by two policies, 64 in a call");
    row(table, &of_two, &plain, 64, |calls| calls.of_policies(2));
}

/// Measures the first script beside each of the others. Each has a server of its own.
fn row<const N: usize>(
    table: &mut Table,
    name: &str,
    scripts: &[(&'static str, String); N],
    checks: usize,
    change: impl Fn(Calls) -> Calls,
) {
    let contenders = scripts.each_ref().map(|(_, script)| {
        let stage = Stage::new(None);
        let calls = stage.run(Calls::new(stage.client(), script.clone(), checks));
        let calls = change(calls);
        // From here on each caller has its bucket.
        stage.each(CALLS_IN_FLIGHT, 0..MANY.div_ceil(checks), &calls);
        (stage, calls)
    });
    let work = Work {
        length: SHORT,
        in_flight: CALLS_IN_FLIGHT,
        callers: Callers::Each(1),
    };
    let rounds = contenders
        .each_ref()
        .map(|(stage, calls)| || stage.round(&work, calls));
    let measured = in_turns(
        rounds
            .each_ref()
            .map(|round| round as &dyn Fn() -> Measured),
    );
    let us = |measured: Measured| measured.redis.cpu_us / checks as f64;
    let [first, beside @ ..] = &measured[..] else {
        return;
    };
    for ((other, _), measured) in scripts[1..].iter().zip(beside) {
        table.add(Row::cost(name, " µs", us(*first), (other, us(*measured))));
    }
}
