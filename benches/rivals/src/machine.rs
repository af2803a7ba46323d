//! The machine of the figures.

use std::{fs, thread::available_parallelism};

pub fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns how many threads wanted to run in the last minute: 0, if the numbers can be trusted.
pub fn load() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split(' ').next().unwrap_or_default().to_owned()
}

pub fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(": "));
    model.map_or("unknown CPU", |(_, model)| model).to_owned()
}
