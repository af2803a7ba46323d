//! I3: how much memory this process holds over time.

use std::sync::atomic::AtomicU64;

use crate::{prelude::*, support::cluster::Meanwhile};

const EVERY: Duration = Duration::from_millis(50);

/// Kilobytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Memory {
    pub(crate) before: u64,
    pub(crate) most: u64,
    pub(crate) after: u64,
}

impl Memory {
    /// I3: it grew by at most `most_growth`, and came back to within `percent_left` percent of
    /// what it was.
    pub(crate) fn bounded(self, most_growth: u64, percent_left: u64) -> Result<Self, String> {
        if self.most > self.before + most_growth {
            return Err(format!("I3: grew by more than {most_growth} kB: {self:?}"));
        }
        if self.after > self.before + self.before * percent_left / 100 {
            return Err(format!("I3: more than {percent_left}% stayed: {self:?}"));
        }
        Ok(self)
    }
}

/// Watches until it is stopped.
pub(crate) struct Sampler {
    before: u64,
    most: Arc<AtomicU64>,
    _thread: Meanwhile,
}

impl Sampler {
    pub(crate) fn start() -> Self {
        let before = resident_kb();
        let most = Arc::new(AtomicU64::new(before));
        let seen = Arc::clone(&most);
        let _thread = Meanwhile::new(move |_| {
            seen.fetch_max(resident_kb(), Ordering::Relaxed);
            std::thread::sleep(EVERY);
        });
        Self {
            before,
            most,
            _thread,
        }
    }

    pub(crate) fn stop(self) -> Memory {
        Memory {
            before: self.before,
            most: self.most.load(Ordering::Relaxed),
            after: resident_kb(),
        }
    }
}

pub(crate) fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.expect("VmRSS in kB")
}
