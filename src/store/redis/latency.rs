//! How long calls take, and how much of that is distance and how much is load.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest round trip is measured again in each window, so a longer route is known after one
/// window, at most two.
const WINDOW: Duration = Duration::from_secs(5);
/// The weight of one call in the typical round trip: one in this many.
const SMOOTHING: u32 = 8;
/// The part of the way back that counts as the wait of a reply for a thread of this process, which
/// is load. When it counted as distance, 64 callers in flight beside the server got a quarter fewer
/// decisions.
const OWN_DELAY: Duration = Duration::from_millis(1);
/// A call that takes this many times the typical round trip met a stall.
const STALL: u32 = 4;

/// The round trips of the calls to one server. [`Duration::MAX`] is unknown.
///
/// The shortest round trip is the distance. It must be able to grow, because routes
/// change. But an overloaded server has only long round trips, too. A call waits on its
/// way to the script, and not on its way back. So the distance grows only if the way
/// back grows, from the script's clock to the reply. The offset between that clock and
/// this process's clock does not matter: only its changes do. The way back also shows how much
/// longer a call typically takes because of jitter.
#[derive(Debug)]
pub(super) struct Latency {
    started: Instant,
    /// Of the last call, however it ended.
    last: Duration,
    /// Of the last call that was answered.
    last_answered: Duration,
    typical: Duration,
    shortest: Duration,
    window: Window,
    /// The shortest way back in the previous window, if known.
    way_back_us: Option<i64>,
    /// The typical way back, if known.
    typical_way_back_us: Option<i64>,
    /// When the server was last found to stall.
    pub(super) stalled_at: Option<Instant>,
    /// When more refunds waited than one call takes.
    pub(super) flooded_at: Option<Instant>,
    /// How many calls may be under way.
    pub(super) max_calls: usize,
    /// How many of them may wait at the server. `max_calls` is never less.
    max_queued: usize,
}

/// The minima of a span of time.
#[derive(Debug)]
struct Window {
    since: Instant,
    shortest: Duration,
    way_back_us: Option<i64>,
}

impl Latency {
    pub(super) fn new(max_queued: usize) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: Duration::MAX,
            last_answered: Duration::ZERO,
            typical: Duration::MAX,
            shortest: Duration::MAX,
            window: Window::new(now),
            way_back_us: None,
            typical_way_back_us: None,
            stalled_at: None,
            flooded_at: None,
            max_calls: max_queued,
            max_queued,
        }
    }

    /// Records a call that was not answered.
    pub(super) fn record_silence(&mut self, took: Duration, timeout: Duration) {
        self.record(took, timeout);
        self.max_calls = (self.max_calls / 2).max(self.max_queued);
    }

    /// Records a call that was answered while `calls` were under way, itself included. `server_us`:
    /// the server's clock, from its reply.
    pub(super) fn record_reply(
        &mut self,
        took: Duration,
        server_us: Option<u64>,
        calls: usize,
        timeout: Duration,
    ) {
        self.record(took, timeout);
        self.last_answered = took;
        self.measure(took, server_us, Instant::now());
        let useful = self.useful_calls();
        if useful < self.max_calls {
            self.max_calls = useful;
        } else if useful > self.max_calls && 2 * calls >= self.max_calls {
            // Grows only while it is used: it at most doubles in a round trip.
            self.max_calls += 1;
        }
    }

    fn record(&mut self, took: Duration, timeout: Duration) {
        if took >= timeout / 2 && self.typical.saturating_mul(STALL) <= took {
            self.stalled_at = Some(Instant::now());
        }
        self.last = took;
        self.typical = match self.typical {
            Duration::MAX => took,
            typical => typical - typical / SMOOTHING + took / SMOOTHING,
        };
    }

    fn measure(&mut self, took: Duration, server_us: Option<u64>, now: Instant) {
        if now.duration_since(self.window.since) >= WINDOW {
            let grown_us = i64_us(self.window.shortest.saturating_sub(self.shortest));
            let ways_back = self.way_back_us.zip(self.window.way_back_us);
            // About half of a route's growth is on its way back.
            let is_farther =
                ways_back.is_some_and(|(old, new)| new.saturating_sub(old) >= grown_us / 4);
            if is_farther {
                self.shortest = self.window.shortest;
            }
            self.way_back_us = self.window.way_back_us;
            self.window = Window::new(now);
        }
        self.shortest = self.shortest.min(took);
        self.window.shortest = self.window.shortest.min(took);
        if let Some(server_us) = server_us {
            let server_us = i64::try_from(server_us).unwrap_or(i64::MAX);
            let now_us = i64_us(now.duration_since(self.started));
            let way_back_us = now_us.saturating_sub(server_us);
            let least = self.window.way_back_us.unwrap_or(i64::MAX);
            self.window.way_back_us = Some(least.min(way_back_us));
            let typical = self.typical_way_back_us.unwrap_or(way_back_us);
            let change = way_back_us.saturating_sub(typical) / i64::from(SMOOTHING);
            self.typical_way_back_us = Some(typical.saturating_add(change));
        }
    }

    /// Forgets the distance: the connection was lost, and the next one may lead elsewhere.
    pub(super) fn forget(&mut self) {
        self.shortest = Duration::MAX;
        self.window = Window::new(Instant::now());
        self.way_back_us = None;
        self.typical_way_back_us = None;
    }

    /// Returns how long a call typically takes if it waits for no other: the shortest round trip,
    /// plus, for both ways, the typical excess of the way back over its shortest without
    /// [`OWN_DELAY`].
    fn distance(&self) -> Duration {
        let ways_back = [self.way_back_us, self.window.way_back_us];
        let shortest = ways_back.into_iter().flatten().min();
        let longer = shortest.zip(self.typical_way_back_us);
        let longer_us = longer.map_or(0, |(shortest, typical)| typical.saturating_sub(shortest));
        let jitter = Duration::from_micros(u64::try_from(longer_us).unwrap_or(0));
        self.shortest
            .saturating_add(2 * jitter.saturating_sub(OWN_DELAY))
    }

    /// Returns the number of calls with which `max_queued` of them wait at the server, as
    /// TCP Vegas reckons: by how much a call takes longer than the shortest did.
    fn useful_calls(&self) -> usize {
        let (typical, distance) = (self.typical.as_micros(), self.distance().as_micros());
        let queued = typical.saturating_sub(distance);
        let calls = (typical * self.max_queued as u128).checked_div(queued);
        calls.map_or(usize::MAX, |calls| {
            usize::try_from(calls).unwrap_or(usize::MAX)
        })
    }

    /// Returns how long a reply takes if the load stays as it is.
    pub(super) fn expected(&self) -> Duration {
        match self.last_answered / 2 > self.distance() {
            true => self.last_answered,
            false => self.last_answered.min(self.shortest),
        }
    }

    /// Whether this many calls like the last one, one after another, take no longer than
    /// `remaining`.
    pub(super) fn fits(&self, calls: u32, remaining: Duration) -> bool {
        self.last.saturating_mul(calls) <= remaining
    }

    /// Whether load, and not distance, makes calls so slow that a few in a row would be
    /// late.
    pub(super) fn is_overloaded_for(&self, remaining: Duration) -> bool {
        self.last / 2 > self.distance() && !self.fits(4, remaining)
    }
}

impl Window {
    const fn new(since: Instant) -> Self {
        Self {
            since,
            shortest: Duration::MAX,
            way_back_us: None,
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

    /// Makes calls for two windows, with `queued` at the server and `each_way`. The
    /// server's clock is an hour ahead, and is read when a call is served.
    async fn ask(latency: &mut Latency, started: Instant, each_way: Duration, queued: Duration) {
        for _ in 0..200 {
            advance(2 * WINDOW / 200).await;
            let took = 2 * each_way + queued;
            let hour = Duration::from_secs(3_600);
            let server = (started.elapsed() + hour).saturating_sub(each_way);
            let server_us = u64::try_from(server.as_micros()).ok();
            latency.record_reply(took, server_us, 100, TIMEOUT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_route_counts_as_distance_and_a_longer_wait_as_load() {
        let (mut latency, started) = (Latency::new(3), Instant::now());
        ask(&mut latency, started, MS / 2, Duration::ZERO).await;
        assert!(latency.max_calls > 100, "{latency:?}");
        // However long it lasts.
        for _ in 0..10 {
            ask(&mut latency, started, MS / 2, 24 * MS).await;
            assert_eq!(latency.max_calls, 3, "{latency:?}");
            assert!(latency.is_overloaded_for(TIMEOUT));
            assert_eq!(latency.expected(), 25 * MS);
        }
        ask(&mut latency, started, 15 * MS, Duration::ZERO).await;
        ask(&mut latency, started, 15 * MS, Duration::ZERO).await;
        assert!(latency.max_calls > 100, "{latency:?}");
        assert!(!latency.is_overloaded_for(TIMEOUT));
        ask(&mut latency, started, 15 * MS, 15 * MS).await;
        assert_eq!(latency.max_calls, 9, "{latency:?}");
        ask(&mut latency, started, MS / 2, Duration::ZERO).await;
        assert_eq!(latency.expected(), MS);
    }
}
