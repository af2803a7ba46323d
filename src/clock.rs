//! Clocks: the time of a decision.
//!
//! Every decision is made at one instant, an integer count of microseconds
//! since the UNIX epoch. The arithmetic takes it as an argument, so tests move
//! a clock instead of sleeping.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Returns the time, in microseconds since the UNIX epoch.
///
/// Implement it to run a store on a clock of your own. It may be called from any thread, and must
/// not block. A store replaces times outside the range of 1 to 2^53 microseconds (the year 2255) by
/// the nearest time inside.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the microseconds since 1970-01-01T00:00:00Z.
    fn now_us(&self) -> u64;
}

/// The machine's wall clock, read once and then continued by its monotonic clock.
///
/// Later corrections of the wall clock do not change it, so they neither lock a caller out nor
/// admit one early. Windows that are aligned to UTC, and reset times in headers, follow the wall
/// clock as it was when this value was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    started: Instant,
    started_us: u64,
}

impl SystemClock {
    /// Creates a clock from the wall clock.
    pub(crate) fn new() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started: Instant::now(),
            started_us: whole_us(since_epoch),
        }
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        self.started_us
            .saturating_add(whole_us(self.started.elapsed()))
    }
}

/// A clock for tests, which moves only when the test moves it.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tower_throttle::{ManualClock, MemoryStore, Limiter, TokenBucket};
///
/// let clock = Arc::new(ManualClock::new());
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let limiter = Limiter::new(store, TokenBucket::per_second(1));
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// assert!(limiter.check("ann").await?.is_allowed());
/// assert!(!limiter.check("ann").await?.is_allowed());
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check("ann").await?.is_allowed());
/// # Ok::<(), tower_throttle::StoreError>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// 2026-01-01T00:00:00Z, a whole UTC day.
    const START_US: u64 = 1_767_225_600_000_000;

    /// Creates a clock at 2026-01-01T00:00:00Z.
    #[must_use]
    pub const fn new() -> Self {
        Self::at_us(Self::START_US)
    }

    /// Creates a clock at `now_us`, in microseconds since the UNIX epoch.
    #[must_use]
    pub const fn at_us(now_us: u64) -> Self {
        Self(AtomicU64::new(now_us))
    }

    /// Moves the clock forward, by whole microseconds.
    pub fn advance(&self, by: Duration) {
        let on = |now_us: u64| Some(now_us.saturating_add(whole_us(by)));
        // It never fails: there is always a next instant.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, on);
    }

    /// Sets the clock to `now_us`, forwards or backwards, like a corrected wall clock.
    pub fn set_us(&self, now_us: u64) {
        self.0.store(now_us, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now_us(&self) -> u64 {
        (**self).now_us()
    }
}

/// Returns the time of a clock, limited to times with which all arithmetic is exact.
pub(crate) fn read(clock: &dyn Clock) -> u64 {
    clock.now_us().clamp(1, LAST_US)
}

/// Window ends keep 13 digits of milliseconds until then, and a window more.
const LAST_US: u64 = 1 << 53;

pub(crate) fn whole_us(duration: Duration) -> u64 {
    let seconds_us = duration.as_secs().saturating_mul(1_000_000);
    seconds_us.saturating_add(duration.subsec_micros().into())
}
