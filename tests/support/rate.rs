//! Calls at a steady rate.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

/// Makes calls, which are numbered from 0, at a rate by the time of Tokio.
pub async fn at_rate(per_s: u64, lasts: Duration, mut call: impl FnMut(u64)) {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (began, mut made) = (Instant::now(), 0);
    while began.elapsed() < lasts {
        ticks.tick().await;
        let due = began.elapsed().as_micros() as u64 * per_s / 1_000_000;
        (made..due).for_each(&mut call);
        made = due;
    }
}
