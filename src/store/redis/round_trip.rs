//! How long calls take, and how much of that is distance and not load.

use std::time::Duration;

use tokio::time::Instant;

/// A route that has become longer is known after one of these, at most two.
const WINDOW: Duration = Duration::from_secs(5);
/// A call counts for one part in so many of the typical one.
const PARTS: u32 = 8;
/// A call that takes so many times as long as the typical one meets a stall.
const STALL: u32 = 4;

/// Round trips of the calls to one server. [`Duration::MAX`] is unknown.
///
/// The shortest one is the distance. It must be able to grow, as routes change.
/// But a server that is overloaded for long has only long round trips, too. What
/// waits there waits on its way to the script, and not on the way back: so
/// distance grows only with the way back, from the script's time to its answer.
/// How far that clock is from this process's own does not matter, only changes do.
#[derive(Debug)]
pub(super) struct RoundTrip {
    started: Instant,
    /// Of the last call, however it ended.
    last: Duration,
    /// Of the last call that was answered.
    answered: Duration,
    typical: Duration,
    shortest: Duration,
    window: Window,
    /// The shortest way back of the window before, where it was known.
    back_us: Option<i64>,
    stalled_at: Option<Instant>,
    /// How many calls may be under way, and how many of them may wait at the
    /// server: fewer there never may be.
    most_calls: usize,
    most_queued: usize,
}

/// The least of a stretch of time.
#[derive(Debug)]
struct Window {
    since: Instant,
    shortest: Duration,
    back_us: Option<i64>,
}

/// How a call ended.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    pub(super) took: Duration,
    pub(super) is_answered: bool,
    /// The server's clock, in its answer.
    pub(super) server_us: Option<u64>,
}

impl RoundTrip {
    pub(super) fn new(most_queued: usize) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: Duration::MAX,
            answered: Duration::ZERO,
            typical: Duration::MAX,
            shortest: Duration::MAX,
            window: Window::new(now),
            back_us: None,
            stalled_at: None,
            most_calls: most_queued,
            most_queued,
        }
    }

    /// Learns from a call that ended while `calls` were under way, itself among
    /// them. `timeout`: the longest that one may take.
    pub(super) fn record(&mut self, ended: Ended, calls: usize, timeout: Duration) {
        let (now, took) = (Instant::now(), ended.took);
        if took >= timeout / 2 && self.typical.saturating_mul(STALL) <= took {
            self.stalled_at = Some(now);
        }
        self.last = took;
        self.typical = match self.typical {
            Duration::MAX => took,
            typical => typical - typical / PARTS + took / PARTS,
        };
        if !ended.is_answered {
            self.most_calls = (self.most_calls / 2).max(self.most_queued);
            return;
        }
        self.answered = took;
        self.measure(took, ended.server_us, now);
        let useful = self.useful_calls();
        if useful < self.most_calls {
            self.most_calls = useful;
        } else if useful > self.most_calls && 2 * calls >= self.most_calls {
            // What was not tried is not known: twice as many in a round trip at most.
            self.most_calls += 1;
        }
    }

    fn measure(&mut self, took: Duration, server_us: Option<u64>, now: Instant) {
        if now.duration_since(self.window.since) >= WINDOW {
            let grown_us = i64_us(self.window.shortest.saturating_sub(self.shortest));
            let is_farther = self
                .back_us
                .zip(self.window.back_us)
                .is_some_and(|(old, new)| {
                    // Half of what a route grows by is on its way back, or some of it.
                    new.saturating_sub(old) >= grown_us / 4
                });
            if is_farther {
                self.shortest = self.window.shortest;
            }
            self.back_us = self.window.back_us;
            self.window = Window::new(now);
        }
        self.shortest = self.shortest.min(took);
        self.window.shortest = self.window.shortest.min(took);
        if let Some(server_us) = server_us {
            let server_us = i64::try_from(server_us).unwrap_or(i64::MAX);
            let now_us = i64_us(now.duration_since(self.started));
            let back_us = now_us.saturating_sub(server_us);
            let least = self
                .window
                .back_us
                .map_or(back_us, |least| least.min(back_us));
            self.window.back_us = Some(least);
        }
    }

    /// The connection was lost: the next may lead elsewhere.
    pub(super) fn forget(&mut self) {
        self.shortest = Duration::MAX;
        self.window = Window::new(Instant::now());
        self.back_us = None;
    }

    /// With more calls under way, more than `most_queued` of them would wait at
    /// the server, as TCP Vegas reckons: by how much a call takes longer than
    /// the shortest did.
    fn useful_calls(&self) -> usize {
        let (typical, shortest) = (self.typical.as_micros(), self.shortest.as_micros());
        let queued = typical.saturating_sub(shortest);
        let calls = (typical * self.most_queued as u128).checked_div(queued);
        calls.map_or(usize::MAX, |calls| {
            usize::try_from(calls).unwrap_or(usize::MAX)
        })
    }

    /// How many calls may be under way.
    pub(super) const fn most_calls(&self) -> usize {
        self.most_calls
    }

    /// How long an answer takes, if no more is asked than before.
    pub(super) fn expected(&self) -> Duration {
        match self.answered / 2 > self.shortest {
            true => self.answered,
            false => self.answered.min(self.shortest),
        }
    }

    /// Whether so many calls like the last, one after another, take no longer
    /// than `left`.
    pub(super) fn fits(&self, calls: u32, left: Duration) -> bool {
        self.last.saturating_mul(calls) <= left
    }

    /// Whether calls take so long that a few in a row are too late, and that is
    /// because of too many, not of the way there.
    pub(super) fn is_slow_for(&self, left: Duration) -> bool {
        self.last / 2 > self.shortest && !self.fits(4, left)
    }

    /// When it was last noticed that the server stands still.
    pub(super) const fn stalled_at(&self) -> Option<Instant> {
        self.stalled_at
    }
}

impl Window {
    const fn new(since: Instant) -> Self {
        Self {
            since,
            shortest: Duration::MAX,
            back_us: None,
        }
    }
}

fn i64_us(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const TIMEOUT: Duration = Duration::from_millis(50);

    /// Calls for two windows, with `queued` at the server and `each_way`. The
    /// server's clock is an hour ahead, and is read when a call is served.
    async fn ask(
        round_trip: &mut RoundTrip,
        started: Instant,
        each_way: Duration,
        queued: Duration,
    ) {
        for _ in 0..200 {
            advance(2 * WINDOW / 200).await;
            let took = 2 * each_way + queued;
            let hour = Duration::from_secs(3_600);
            let server = (started.elapsed() + hour).saturating_sub(each_way);
            let ended = Ended {
                took,
                is_answered: true,
                server_us: u64::try_from(server.as_micros()).ok(),
            };
            round_trip.record(ended, 100, TIMEOUT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_way_is_distance_and_a_longer_wait_is_load() {
        let (mut round_trip, started) = (RoundTrip::new(3), Instant::now());
        ask(&mut round_trip, started, MS / 2, Duration::ZERO).await;
        assert!(round_trip.most_calls() > 100, "{round_trip:?}");
        // However long it lasts.
        for _ in 0..10 {
            ask(&mut round_trip, started, MS / 2, 24 * MS).await;
            assert_eq!(round_trip.most_calls(), 3, "{round_trip:?}");
            assert!(round_trip.is_slow_for(TIMEOUT));
            assert_eq!(round_trip.expected(), 25 * MS);
        }
        ask(&mut round_trip, started, 15 * MS, Duration::ZERO).await;
        ask(&mut round_trip, started, 15 * MS, Duration::ZERO).await;
        assert!(round_trip.most_calls() > 100, "{round_trip:?}");
        assert!(!round_trip.is_slow_for(TIMEOUT));
        ask(&mut round_trip, started, 15 * MS, 15 * MS).await;
        assert_eq!(round_trip.most_calls(), 9, "{round_trip:?}");
        ask(&mut round_trip, started, MS / 2, Duration::ZERO).await;
        assert_eq!(round_trip.expected(), MS);
    }
}
