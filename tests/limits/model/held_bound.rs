//! No order of settlements grants more than the quota.

use tower_throttle::Reserved;

use crate::support::prelude::*;

/// Longer than any walk, so that nothing lapses.
const LIFETIME: Duration = Duration::from_secs(86_400);

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
#[tokio::test]
async fn charges_are_bounded_by_the_quota_and_by_what_estimates_fell_short() {
    let mut random = Random::new();
    let (mut most_charged, mut walks_with_debt) = (0, 0);
    for walk in 0..300 {
        let kind = random.one_of(&[Kind::Bucket, Kind::Log, Kind::Window]);
        let capacity = random.between(1, 40);
        let minute = Duration::from_secs(60);
        let policy = match kind {
            Kind::Bucket => Policy::new("units", TokenBucket::per_second(1).burst(capacity)),
            Kind::Log => Policy::new("units", SlidingLog::new(capacity, minute)),
            Kind::Window => Policy::new("units", FixedWindow::new(capacity, minute).aligned()),
        };
        let (store, clock) = manual_store();
        let limiter = Limiter::new(store, policy.hold_for(LIFETIME));
        let may_exceed = random.percent(40);
        let mut open: Vec<(Reserved, u64)> = Vec::new();
        // When, and how many units.
        let mut charges: Vec<(u64, u64)> = Vec::new();
        let (mut now_s, mut short) = (0, 0);
        for _ in 0..120 {
            let units = random.between(1, capacity);
            match random.below(6) {
                0 | 1 => {
                    let held = limiter.reserve("ann", units).await.expect("a decision");
                    open.extend(held.is_allowed().then_some((held, units)));
                }
                2 | 3 if !open.is_empty() => {
                    let place = random.below(open.len() as u64) as usize;
                    let (held, estimate) = open.swap_remove(place);
                    let used = match may_exceed {
                        true => random.below(2 * estimate + 1),
                        false => random.below(estimate + 1),
                    };
                    let charged = held.settle(used).await.expect("a settlement").charged();
                    assert!(charged <= used);
                    assert!(charged >= used.min(estimate), "what was held is charged");
                    short += charged.saturating_sub(estimate);
                    charges.push((now_s, charged));
                }
                4 => {
                    let decision = limiter.check_n("ann", units).await;
                    if decision.expect("a decision").is_allowed() {
                        charges.push((now_s, units));
                    }
                }
                _ => {
                    let pause = random.one_of(&[0, 1, 5, 30, 60]);
                    clock.advance(Duration::from_secs(pause));
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
    let is_telling = most_charged > 40 && walks_with_debt > 20;
    assert!(is_telling, "the walks show something");
}
