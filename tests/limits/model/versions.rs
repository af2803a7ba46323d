//! Two versions of a policy on one bucket: what they admit together, and that what takes nothing
//! changes nothing for the other.

use std::collections::VecDeque;

use super::bench::{Bench, START_US};
use crate::support::prelude::*;

/// The forms of state. Versions of one form share their buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Tokens,
    AtOnce,
    Leaky,
    Fixed,
    Sliding,
    Log,
}

const FORMS: [Form; 6] = [
    Form::Tokens,
    Form::AtOnce,
    Form::Leaky,
    Form::Fixed,
    Form::Sliding,
    Form::Log,
];

/// Some periods divide others, and some do not.
const PERIODS_MS: [u64; 7] = [50, 100, 200, 300, 1_000, 60_000, 3_600_000];

const DAY_US: u64 = 86_400_000_000;

fn any_quota(form: Form, random: &mut Random) -> Quota {
    let (limit, capacity) = (random.between(1, 20), random.between(1, 40));
    let period = ms(random.one_of(&PERIODS_MS));
    let bucket = TokenBucket::new(limit, period).burst(capacity);
    let quota = match form {
        Form::Tokens => bucket.try_into(),
        Form::AtOnce if random.percent(10) => TokenBucket::without_refill(capacity).try_into(),
        Form::AtOnce => bucket.refill_at_once().try_into(),
        Form::Leaky if random.percent(50) => LeakyBucket::new(limit, period)
            .capacity(capacity)
            .try_into(),
        Form::Leaky => LeakyBucket::new(limit, period)
            .queue(capacity - 1)
            .try_into(),
        Form::Fixed => {
            let window = FixedWindow::new(capacity, period);
            match random.below(6) {
                0..2 => window.try_into(),
                2..4 => window.aligned().try_into(),
                4 => FixedWindow::per_calendar_day(capacity).try_into(),
                _ => FixedWindow::per_calendar_month(capacity).try_into(),
            }
        }
        Form::Sliding => SlidingWindow::new(capacity, period).try_into(),
        Form::Log => SlidingLog::new(capacity, period).try_into(),
    };
    quota.expect("a quota")
}

/// Returns how many units two versions may admit together within a span: the larger capacity, and then
/// the larger limit once more at each end of a period of either.
fn most_admitted(form: Form, versions: [Quota; 2], span_us: u64) -> u64 {
    let larger = |number: fn(&Quota) -> u64| versions.iter().map(number).max().expect("two");
    // The end of another version's period refills a bucket that has no refill of its own.
    let refill = |quota: &Quota| match quota.limit() {
        0 => 2 * quota.capacity(),
        limit => limit,
    };
    let (capacity, limit) = (larger(Quota::capacity), larger(refill));
    match form {
        // They refill at no more than the larger rate.
        Form::Tokens | Form::Leaky => {
            let refilled = versions.iter().map(|quota| {
                let span = u128::from(quota.limit()) * u128::from(span_us + 1) * 1_000;
                (span / quota.period().as_nanos()) as u64
            });
            capacity + refilled.max().expect("two")
        }
        _ if span_us == 0 && form != Form::Sliding => capacity,
        _ => {
            let ends = versions.map(|quota| span_us / shortest_period_us(&quota) + 1);
            // The estimate of a sliding window alone admits twice its limit.
            let estimated = if form == Form::Sliding { capacity } else { 0 };
            capacity + estimated + limit * ends.iter().sum::<u64>()
        }
    }
}

fn shortest_period_us(quota: &Quota) -> u64 {
    match quota.to_string().contains("month") {
        true => 28 * DAY_US,
        false => quota.period().as_micros() as u64,
    }
}

struct Chain<'c> {
    limiters: [Limiter; 2],
    quotas: [Quota; 2],
    clock: &'c ManualClock,
}

impl Chain<'_> {
    fn any(&self, random: &mut Random) -> usize {
        random.below(2) as usize
    }

    fn step(&self, random: &mut Random) {
        let quota = self.quotas[self.any(random)];
        // Without refill, a period is a century.
        let period_us = (quota.period().as_micros() as u64).min(31 * DAY_US);
        let unit_us = period_us / quota.limit().max(1);
        let step_us = match random.below(8) {
            0..4 => 0,
            4..6 => random.below(2 * unit_us + 2),
            6 => random.below(period_us + 2),
            _ => period_us,
        };
        self.clock.advance(Duration::from_micros(step_us));
    }

    /// Returns all that a version says to a request.
    async fn seen(&self, version: usize, key: &str) -> Vec<String> {
        let decision = self.limiters[version].peek(key).await.expect("a decision");
        let policies = decision.policies();
        let seen = policies.map(|policy| {
            let (left, reset) = (policy.remaining(), policy.reset_after());
            format!("{left} left, {reset:?}, {:?}", policy.retry_after())
        });
        seen.collect()
    }

    /// Takes by any version in any order. No span admits more than the bound.
    async fn assert_bounded(&self, form: Form, random: &mut Random) -> u64 {
        let mut admitted = VecDeque::new();
        for _ in 0..150 {
            self.step(random);
            let (version, now_us) = (self.any(random), self.clock.now_us());
            let units = match random.below(3) {
                0 => random.below(self.quotas[version].capacity() + 2),
                _ => 1,
            };
            let limiter = &self.limiters[version];
            let decision = limiter.check_n("ann", units).await.expect("a decision");
            if decision.is_allowed() {
                admitted.push_back((now_us, units));
            }
        }
        for from in 0..admitted.len() {
            let (mut sum, (from_us, _)) = (0, admitted[from]);
            for &(at_us, units) in admitted.range(from..) {
                sum += units;
                let most = most_admitted(form, self.quotas, at_us - from_us);
                let [one, other] = self.quotas;
                let span = at_us - from_us;
                assert!(sum <= most, "{sum} > {most} in {span} us: {one} | {other}");
            }
        }
        admitted.len() as u64
    }

    /// Brings two callers to the same state. Then one version denies one of them, or takes nothing: the
    /// other version finds both alike, now and later. Returns how often it asked.
    async fn assert_undisturbed(&self, random: &mut Random) -> u64 {
        let mut disturbed = 0;
        for _ in 0..12 {
            for _ in 0..random.below(12) {
                self.step(random);
                let version = self.any(random);
                let units = random.below(self.quotas[version].capacity() + 2);
                for key in ["ann", "bob"] {
                    let decision = self.limiters[version].check_n(key, units).await;
                    decision.map(drop).expect("a decision");
                }
            }
            let version = self.any(random);
            let [own, other] = [version, 1 - version].map(|version| &self.limiters[version]);
            for _ in 0..6 {
                let found = own.peek("ann").await.expect("a decision");
                let left = found.policies().next().expect("a policy").remaining();
                let capacity = self.quotas[version].capacity();
                let units = if left < capacity { left + 1 } else { 0 };
                let decision = own.check_n("ann", units).await.expect("a decision");
                assert_eq!(decision.is_allowed(), units == 0);
                disturbed += 1;
                let [ann, bob] = ["ann", "bob"].map(|key| self.seen(1 - version, key));
                let (ann, bob, [one, theirs]) = (ann.await, bob.await, self.quotas);
                assert_eq!(ann, bob, "{one} | {theirs}, disturbed by {version}");
                self.step(random);
            }
            for key in ["ann", "bob"] {
                other.reset(key).await.expect("a reset");
            }
        }
        disturbed
    }
}

/// Returns two versions of one form, each with numbers of its own.
fn any_versions(number: u64, random: &mut Random) -> (Form, [Quota; 2]) {
    let form = FORMS[number as usize % FORMS.len()];
    (form, [any_quota(form, random), any_quota(form, random)])
}

async fn walk_on(store: Arc<dyn Store>, clock: &ManualClock, chains: u64, random: &mut Random) {
    let (mut admitted, mut disturbed) = (0, 0);
    for number in 0..chains {
        let (form, quotas) = any_versions(number, random);
        let version = |quota| Limiter::new(Arc::clone(&store), Policy::new("api", quota));
        let chain = Chain {
            limiters: quotas.map(version),
            quotas,
            clock,
        };
        admitted += chain.assert_bounded(form, random).await;
        chain.limiters[0].reset("ann").await.expect("a reset");
        disturbed += chain.assert_undisturbed(random).await;
    }
    println!("{chains} chains: {admitted} admissions, {disturbed} checks that took nothing");
    assert!(admitted > 20 * chains && disturbed == 72 * chains);
}

#[tokio::test]
async fn two_versions_in_memory_keep_one_bound_and_leave_each_other_alone() {
    let mut random = Random::new();
    let clock = Arc::new(ManualClock::at_us(START_US));
    // One part, so that both callers' drained buckets are forgotten at one time.
    let store = MemoryStore::builder().capacity(64).clock(clock.clone());
    walk_on(Arc::new(store.build()), &clock, walks(2_400), &mut random).await;
}

#[test]
fn two_versions_on_redis_keep_one_bound_and_leave_each_other_alone() {
    let (bench, mut random) = (Bench::new(), Random::new());
    let store = Arc::new(bench.uncached.clone());
    let walk = walk_on(store, &bench.clock, walks(240), &mut random);
    bench.runtime.block_on(walk);
}

/// Used units stay used at another rate, and only the rate of the refill changes.
#[test]
fn another_rate_takes_no_tokens_and_gives_none() {
    let bench = Bench::new();
    let memory = MemoryStore::builder().clock(bench.clock.clone()).build();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(memory), Arc::new(bench.uncached.clone())];
    bench.runtime.block_on(async {
        for store in &stores {
            for (name, [old, new], taken, left, next) in [
                (
                    "raised",
                    ["60 per minute", "600 per minute, burst 60"],
                    6,
                    54,
                    100,
                ),
                ("lowered", ["60 per minute", "60 per hour"], 60, 0, 60_000),
                (
                    "deeper",
                    ["60 per minute", "60 per hour, burst 90"],
                    60,
                    30,
                    60_000,
                ),
                (
                    "leaky",
                    [
                        "leaky bucket of 60 per minute",
                        "leaky bucket of 60 per hour",
                    ],
                    60,
                    0,
                    60_000,
                ),
            ] {
                let [old, new] = [old, new].map(|text| {
                    let quota: Quota = text.parse().expect(text);
                    Limiter::new(Arc::clone(store), Policy::new(name, quota))
                });
                let before = old.check_n("ann", taken).await.expect("a decision");
                assert!(before.is_allowed(), "{name}");
                let found = new.peek("ann").await.expect("a decision");
                let policy = found.policies().next().expect("a policy");
                assert_eq!(policy.remaining(), left, "{name}");
                // The first check notes when the new rate began.
                let asked = new.check_n("ann", left + 1).await.expect("a decision");
                assert_eq!(asked.retry_after(), Some(ms(next)), "{name}");
                bench.clock.advance(ms(next) - Duration::from_micros(1));
                let early = new.peek("ann").await.expect("a decision");
                assert_eq!(early.policies().next().expect("a policy").remaining(), left);
                bench.clock.advance(Duration::from_micros(1));
                let decision = new.check_n("ann", left + 1).await.expect("a decision");
                assert!(decision.is_allowed(), "{name}");
            }
        }
    });
}

/// A denial of a version with a small burst frees none of a large one's units.
#[test]
fn a_denial_of_a_smaller_version_frees_nothing_of_a_larger_one() {
    let bench = Bench::new();
    let memory = MemoryStore::builder().clock(bench.clock.clone()).build();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(memory), Arc::new(bench.uncached.clone())];
    bench.runtime.block_on(async {
        for store in &stores {
            let [large, small] = [
                "1 per day, burst 1000, refill at once",
                "1 per hour, burst 1, refill at once",
            ]
            .map(|text| {
                let quota: Quota = text.parse().expect(text);
                Limiter::new(Arc::clone(store), Policy::new("api", quota))
            });
            let taken = large.take_up_to("ann", 1_000).await.expect("a decision");
            assert_eq!(taken.charged(), 1_000);
            assert!(!small.check("ann").await.expect("a decision").is_allowed());
            let again = large.take_up_to("ann", 1_000).await.expect("a decision");
            assert_eq!(again.charged(), 0);
        }
    });
}

/// A bucket may be full but for less than a tick, and grant its burst. Other numbers, which round used
/// units up, do not take the rest for a unit that no version counts.
#[test]
fn a_denial_frees_nothing_of_a_bucket_within_its_slack() {
    let bench = Bench::new();
    let memory = MemoryStore::builder().clock(bench.clock.clone()).build();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(memory), Arc::new(bench.uncached.clone())];
    bench.runtime.block_on(async {
        for store in &stores {
            for smaller in ["7 per minute, burst 10", "2 per minute, burst 9"] {
                let [larger, smaller] = ["7 per minute, burst 11", smaller].map(|text| {
                    let quota: Quota = text.parse().expect(text);
                    Limiter::new(Arc::clone(store), Policy::new("api", quota))
                });
                for units in [7, 11] {
                    for key in ["ann", "bob"] {
                        let decision = larger.check_n(key, units).await.expect("a decision");
                        assert!(decision.is_allowed());
                    }
                    // All units are back but for four nanoseconds of the first ones.
                    bench
                        .clock
                        .advance(if units == 7 { ms(60_000) } else { ms(0) });
                }
                assert!(!smaller.check("ann").await.expect("a decision").is_allowed());
                for waited_us in [0, 1, 999, 8_570_428, 1, 60_000_000] {
                    bench.clock.advance(Duration::from_micros(waited_us));
                    let [ann, bob] = ["ann", "bob"].map(|key| larger.peek(key));
                    let (ann, bob) = (ann.await.expect("ann"), bob.await.expect("bob"));
                    let seen = [ann, bob].map(|decision| {
                        let policy = decision.policies().next().expect("a policy");
                        (
                            policy.remaining(),
                            policy.retry_after(),
                            policy.reset_after(),
                        )
                    });
                    assert_eq!(seen[0], seen[1], "{waited_us}");
                }
                for key in ["ann", "bob"] {
                    larger.reset(key).await.expect("a reset");
                }
            }
        }
    });
}
