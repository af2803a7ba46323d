//! What a process holds must not grow with the faults that it saw.

use tokio::runtime::Handle;

use crate::{memory, row::Row};

const MOST_GROWTH_KB: u64 = 32 * 1_024;
/// Some of them come and go with each request.
const MOST_MORE: u64 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    resident_kb: u64,
    files: u64,
    tasks: u64,
}

impl Sample {
    pub(super) fn now(runtime: &Handle) -> Self {
        let files = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
        Self {
            resident_kb: memory::resident_kb(),
            files: files as u64,
            tasks: runtime.metrics().num_alive_tasks() as u64,
        }
    }
}

type Of = fn(&Sample) -> u64;

/// What leaks never falls to its first level again, so the least of the last quarter is
/// compared with the most of the first.
pub(super) fn judge(samples: &[Sample], row: &mut Row) -> Result<(), String> {
    let quarter = samples.len().div_ceil(4);
    let (first, last) = (&samples[..quarter], &samples[samples.len() - quarter..]);
    let all: [(_, Of, _); 3] = [
        ("resident kB", |sample| sample.resident_kb, MOST_GROWTH_KB),
        ("open files", |sample| sample.files, MOST_MORE),
        ("tasks", |sample| sample.tasks, MOST_MORE),
    ];
    for (name, of, most_more) in all {
        let (before, after) = (first.iter().map(of).max(), last.iter().map(of).min());
        let (Some(before), Some(after)) = (before, after) else {
            return Err("nothing was looked at".to_owned());
        };
        if after > before + most_more {
            return Err(format!("{name} grew from {before} to {after}"));
        }
        let most = samples.iter().map(of).max().unwrap_or_default();
        row.figure(name, format!("{before} then {after}, at most {most}"));
    }
    Ok(())
}
