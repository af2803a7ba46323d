//! No order of settlements grants more than the quota.

use tokio::runtime::{Builder, Runtime};
use tower_throttle::Reserved;

use crate::support::prelude::*;

const CALLER: &str = "ann";
/// Longer than any walk, so that nothing lapses.
const LIFETIME: Duration = Duration::from_secs(86_400);

struct World {
    runtime: Runtime,
    clock: Arc<ManualClock>,
    limiter: Limiter,
}

impl World {
    fn new<Q: TryInto<Quota>>(quota: Q) -> Self
    where
        ConfigError: From<Q::Error>,
    {
        let clock = Arc::new(ManualClock::new());
        let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
        let policy = Policy::new("units", quota).hold_for(LIFETIME);
        let runtime = Builder::new_current_thread().enable_time().build();
        Self {
            runtime: runtime.expect("a runtime"),
            clock,
            limiter: Limiter::new(store, policy),
        }
    }

    /// Holds units, or returns `None` if there is no room.
    fn reserve(&self, units: u64) -> Option<Reserved> {
        let reserved = self.runtime.block_on(self.limiter.reserve(CALLER, units));
        Some(reserved.expect("a decision")).filter(Reserved::is_allowed)
    }

    /// Returns how many units were charged.
    fn settle(&self, reserved: Reserved, units: u64) -> u64 {
        let settled = self.runtime.block_on(reserved.settle(units));
        settled.expect("a settlement").charged()
    }

    /// Charges units at once. Returns whether there was room.
    fn take(&self, units: u64) -> bool {
        let decision = self.limiter.check_n(CALLER, units);
        let decision = self.runtime.block_on(decision).expect("a decision");
        decision.is_allowed()
    }

    fn seconds(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// At most `capacity`, and a unit each second.
    Bucket,
    /// At most `capacity` in any 60 s.
    Log,
    /// At most `capacity` in each minute of the clock.
    Window,
}

/// Walks at random: holds, settles in any order with less, as much or more, takes and waits. Then
/// compares what was charged with what the quota grants, from nothing but the times of charges.
#[test]
fn charges_are_bounded_by_the_quota_and_by_what_estimates_fell_short() {
    let mut random = Random::new();
    let (mut most_charged, mut walks_with_debt) = (0, 0);
    for walk in 0..300 {
        let kind = random.one_of(&[Kind::Bucket, Kind::Log, Kind::Window]);
        let capacity = random.between(1, 40);
        let minute = Duration::from_secs(60);
        let world = match kind {
            Kind::Bucket => World::new(TokenBucket::per_second(1).burst(capacity)),
            Kind::Log => World::new(SlidingLog::new(capacity, minute)),
            Kind::Window => World::new(FixedWindow::new(capacity, minute).aligned()),
        };
        let may_exceed = random.percent(40);
        let mut open: Vec<(Reserved, u64)> = Vec::new();
        // When, and how many units.
        let mut charges: Vec<(u64, u64)> = Vec::new();
        let (mut now_s, mut short) = (0, 0);
        for _ in 0..120 {
            let units = random.between(1, capacity);
            match random.below(6) {
                0 | 1 => open.extend(world.reserve(units).map(|held| (held, units))),
                2 | 3 if !open.is_empty() => {
                    let place = random.below(open.len() as u64) as usize;
                    let (held, estimate) = open.swap_remove(place);
                    let used = match may_exceed {
                        true => random.below(2 * estimate + 1),
                        false => random.below(estimate + 1),
                    };
                    let charged = world.settle(held, used);
                    assert!(charged <= used);
                    assert!(charged >= used.min(estimate), "what was held is charged");
                    short += charged.saturating_sub(estimate);
                    charges.push((now_s, charged));
                }
                4 => {
                    if world.take(units) {
                        charges.push((now_s, units));
                    }
                }
                _ => {
                    let pause = random.one_of(&[0, 1, 5, 30, 60]);
                    world.seconds(pause);
                    now_s += pause;
                }
            }
        }
        for (first, (from_s, _)) in charges.iter().enumerate() {
            let mut sum = 0;
            for (at_s, units) in &charges[first..] {
                sum += units;
                let granted = match kind {
                    Kind::Bucket => capacity + (at_s - from_s),
                    Kind::Log if at_s - from_s < 60 => capacity,
                    Kind::Window if at_s / 60 == from_s / 60 => capacity,
                    Kind::Log | Kind::Window => break,
                };
                assert!(
                    sum <= granted + short,
                    "walk {walk}, {kind:?} of {capacity}: {sum} units from {from_s} s to {at_s} s, \
                     and {granted} are granted, and {short} beyond estimates"
                );
                most_charged = most_charged.max(sum);
            }
        }
        walks_with_debt += u64::from(short > 0);
    }
    assert!(
        most_charged > 40 && walks_with_debt > 20,
        "the walks show something"
    );
}
