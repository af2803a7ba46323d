//! The rows of the table, by topic.

mod bare;
mod commands;
mod curve;
mod denied;
mod growth;
mod hot_key;
mod http;
mod lists;
mod load;
mod lone;
mod lua;
mod memory;
mod outbound;
mod permits;
mod redis;
mod server_cpu;
mod settled;

use crate::table::Table;

/// The name for `--only`, and the function that measures it.
type Section = (&'static str, fn(&mut Table));

pub const SECTIONS: [Section; 16] = [
    ("redis", redis::rows),
    ("lone", lone::rows),
    ("hot_key", hot_key::rows),
    ("denied", denied::rows),
    ("memory", memory::rows),
    ("bare", bare::rows),
    ("outbound", outbound::rows),
    ("lists", lists::rows),
    ("server_cpu", server_cpu::rows),
    ("lua", lua::rows),
    ("permits", permits::rows),
    ("settled", settled::rows),
    ("commands", commands::rows),
    ("http", http::rows),
    ("curve", curve::rows),
    ("growth", growth::rows),
];

const ONE_OR_POOL: &str = "trl-fred, best of 1 client and a pool of 4";

fn threads(number: usize) -> &'static str {
    if number == 1 { "1 thread" } else { "2 threads" }
}
