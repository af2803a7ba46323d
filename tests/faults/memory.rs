//! I3: how much memory this process holds over time.

use std::thread::JoinHandle;

use crate::prelude::*;

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
#[derive(Debug)]
pub(crate) struct Sampler {
    before: u64,
    most: Arc<Mutex<u64>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub(crate) fn start() -> Self {
        let before = resident_kb();
        let most = Arc::new(Mutex::new(before));
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (most, is_over) = (Arc::clone(&most), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let now = resident_kb();
                    let mut most = most.lock().unwrap_or_else(PoisonError::into_inner);
                    *most = now.max(*most);
                    drop(most);
                    std::thread::park_timeout(EVERY);
                }
            }
        });
        Self {
            before,
            most,
            is_over,
            thread: Some(thread),
        }
    }

    pub(crate) fn stop(self) -> Memory {
        Memory {
            before: self.before,
            most: *self.most.lock().unwrap_or_else(PoisonError::into_inner),
            after: resident_kb(),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

pub(crate) fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.expect("VmRSS in kB")
}
