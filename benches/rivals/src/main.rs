//! Measures tower-throttle beside tower_governor (memory) and
//! tower-rate-limit-fred (Redis), in turns, in one run.

mod measure;
mod memory;
mod redis;
mod server;

use std::thread::available_parallelism;

use measure::Row;
use server::RedisServer;

fn main() {
    let redis = RedisServer::start();
    println!(
        "{}, {} cores, load before {}, Redis {}, medians of {} rounds\n",
        cpu_model(),
        cores(),
        load(),
        redis.version,
        measure::ROUNDS
    );
    println!(
        "| work | ours: ops/s | p50 | p99 | rival | ops/s | p50 | p99 | ours / rival |\n\
         |---|--:|--:|--:|---|--:|--:|--:|--:|"
    );
    let print = |row: Row| println!("{row}");
    memory::run(print);
    redis::run(&redis, print);
}

fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// How many threads wanted to run in the last minute: 0, if the numbers are to be trusted.
fn load() -> String {
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split(' ').next().unwrap_or_default().to_owned()
}

fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(": "));
    model.map_or("unknown CPU", |(_, model)| model).to_owned()
}
