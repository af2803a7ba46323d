//! The numbers of a store, also while the application's code that makes them panics.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

use crate::{metrics::store::StoreMetrics, telemetry, util::lock::lock};

/// What a store returned when it was last asked for its numbers.
#[derive(Default)]
pub(super) struct LastNumbers(Mutex<Last>);

#[derive(Default)]
struct Last {
    numbers: StoreMetrics,
    was_logged: bool,
}

impl LastNumbers {
    /// Returns what `read` returns. If it panics: what was counted when it last returned, because a
    /// counter that goes back to zero looks like a restart. What was there then is left out: it
    /// may be gone.
    pub(super) fn or_last(&self, read: impl FnOnce() -> StoreMetrics) -> StoreMetrics {
        let read = catch_unwind(AssertUnwindSafe(read));
        let mut last = lock(&self.0);
        let Ok(numbers) = read else {
            let is_first = !last.was_logged;
            last.was_logged = true;
            let counts = last.numbers.counts();
            // The application's subscriber may ask for the numbers, too.
            drop(last);
            if is_first {
                telemetry::store_metrics_panicked(&counts.name);
            }
            return counts;
        };
        last.numbers.clone_from(&numbers);
        numbers
    }
}

impl fmt::Debug for LastNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastNumbers")
    }
}

#[cfg(all(test, feature = "tracing"))]
#[allow(clippy::panic)]
mod tests {
    use super::{LastNumbers, StoreMetrics};
    use crate::util::log::Log;

    #[test]
    fn a_panic_is_logged_once_for_each_store() {
        let (one, other) = (LastNumbers::default(), LastNumbers::default());
        one.or_last(|| StoreMetrics::new("mine"));
        let log = Log::of(|| {
            for last in [&one, &one, &other] {
                last.or_last(|| panic!("a bug"));
            }
        });
        assert_eq!(log.len(), 2, "{log:?}");
        for (line, name) in log.iter().zip(["mine", "custom"]) {
            let text = format!("`Store::metrics` of store \"{name}\" panicked");
            assert!(line.contains("WARN tower_throttle::wiring"), "{line}");
            assert!(line.contains(&text), "{line}");
        }
    }
}
