//! Compares cached denials with the decisions of the buckets themselves, while clocks move.

mod cases;

use std::{borrow::Cow, ops::Range};

use super::*;
use crate::{
    Clock, FixedWindow, Key, LeakyBucket, ManualClock, OnStoreFailure, Policy, Quota, SlidingLog,
    SlidingWindow, TokenBucket, charge::Demand, policy::Compiled, store::BucketWords,
    util::hash::SecretHasher, util::split_mix::SplitMix64 as Random,
};

impl Random {
    fn from(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    fn quota(&mut self) -> Quota {
        let (limit, room) = (self.from(1..30), self.from(1..12));
        let period = Duration::from_millis(self.from(1..4_000));
        let bucket = TokenBucket::new(limit, period).burst(room);
        let window = FixedWindow::new(room, period);
        let quota: Result<Quota, _> = match self.from(0..13) {
            0 | 1 => bucket.try_into(),
            2 => bucket.initial(self.from(0..room + 1)).try_into(),
            3 => bucket.refill_at_once().try_into(),
            4 => bucket
                .refill_at_once()
                .initial(self.from(0..room + 1))
                .try_into(),
            5 => TokenBucket::without_refill(room).try_into(),
            6 => LeakyBucket::new(limit, period).capacity(room).try_into(),
            7 => LeakyBucket::new(limit, period).queue(room).try_into(),
            8 => window.try_into(),
            9 => window.aligned().try_into(),
            10 => window.aligned().spread().try_into(),
            11 => SlidingWindow::new(room, period).try_into(),
            _ => SlidingLog::new(room, period).try_into(),
        };
        quota.expect("a quota")
    }
}

/// The cost of a check, and the debt that it may have.
type Units = (u64, u64);

/// Some policies of one caller, their buckets, and their cached denials.
struct Scene {
    random: Random,
    policies: Vec<Compiled>,
    buckets: Vec<BucketWords>,
    key: Key,
    denials: Arc<DenialCache>,
    here: Arc<ManualClock>,
    /// By how much the store's clock is ahead.
    ahead_us: u64,
    /// The longest network delay in each direction.
    delay_us: u64,
    /// The latest instant so far, because the clock may step back.
    latest_us: u64,
    /// When other callers last took units. The clock never steps back before that.
    others_us: u64,
    /// Whether others took units since a denial was last cached.
    is_disturbed: bool,
    from_cache: u64,
    sent: u64,
}

impl Scene {
    fn new(seed: u64, is_one_clock: bool) -> Self {
        let mut random = Random(seed);
        let here = Arc::new(ManualClock::at_us(
            1_767_225_600_000_000 + random.from(0..5_000_000),
        ));
        let policies: Vec<Compiled> = (0..random.from(1..4))
            .map(|number| {
                let policy = Policy::new(format!("policy {number}"), random.quota());
                let policy = policy.cost(0).compile(OnStoreFailure::Deny);
                policy.expect("a policy")
            })
            .collect();
        let denials = DenialCache {
            longest_us: random.from(1..60_000_000),
            process: ProcessContext {
                clock: here.clone(),
                is_the_stores_clock: is_one_clock,
                hash: SecretHasher::default(),
            },
            given: RefundEpochs::new(),
            table: Table::default(),
        };
        let skew_us = random.from(0..10_000_000);
        Self {
            buckets: policies.iter().map(|_| BucketWords::default()).collect(),
            policies,
            key: Key::from("ann"),
            denials: Arc::new(denials),
            here,
            ahead_us: if is_one_clock { 0 } else { skew_us },
            delay_us: if is_one_clock { 1 } else { 20_000 },
            random,
            latest_us: 0,
            others_us: 0,
            is_disturbed: false,
            from_cache: 0,
            sent: 0,
        }
    }

    fn store_us(&self) -> u64 {
        self.here.now_us() + self.ahead_us
    }

    fn pass_us(&mut self, most_us: u64) {
        let us = self.random.from(0..most_us);
        self.here.advance(Duration::from_micros(us));
    }

    /// Returns the charges of a check with an overdraft.
    fn charges<'s>(policies: &'s [Compiled], key: &'s Key, (cost, owed): Units) -> Vec<Charge<'s>> {
        let charge = |policy: &'s Compiled| {
            let mut asked = Demand::new(policy.demand.quota.clone(), cost);
            asked.overdraft = asked.quota.extra(asked.quota.level_of(owed)) as i64;
            policy.charge(Cow::Borrowed(key), Cow::Owned(asked))
        };
        policies.iter().map(charge).collect()
    }

    /// Returns what the store would decide, without changing a bucket.
    fn truth(&self, units: Units, at_us: u64) -> Decision {
        let charges = Self::charges(&self.policies, &self.key, units);
        let mut buckets = self.buckets.clone();
        Check::new(Operation::Take, &charges).decide(at_us, &mut buckets)
    }

    fn ask(&mut self, operation: Operation, units: Units) {
        let (policies, key) = (self.policies.clone(), self.key.clone());
        let charges = Self::charges(&policies, &key, units);
        let check = Check::new(operation, &charges);
        let pending = match self.denials.look_up(&check) {
            Lookup::Denied(decision) => {
                assert_eq!(operation, Operation::Take);
                self.from_cache += 1;
                self.compare(&decision, units);
                return;
            }
            Lookup::Ask(pending) => pending,
        };
        self.sent += 1;
        self.pass_us(self.delay_us);
        let decision = check.decide(self.store_us(), &mut self.buckets);
        self.pass_us(self.delay_us);
        record_decision(pending, &decision);
        // A check that is impossible reveals nothing about the buckets.
        self.is_disturbed &= decision.verdict() == Verdict::Impossible;
    }

    fn compare(&mut self, cached: &Decision, units: Units) {
        let truth = self.truth(units, self.store_us());
        assert_eq!(cached.verdict(), Verdict::Denied);
        assert_eq!(truth.verdict(), Verdict::Denied, "{cached:?}");
        assert_eq!(cached.source(), crate::Source::Cache);
        if self.is_disturbed {
            return;
        }
        // The decision is dated no later than now, and early by both network delays at most.
        let early_us = self.store_us() - cached.decided_at_us();
        assert!(early_us <= 2 * self.delay_us, "{early_us}");
        if self.delay_us == 1 {
            assert_eq!(early_us, 0);
        }
        let then = self.truth(units, cached.decided_at_us());
        let shown = |decision: &Decision| format!("{:?}", decision.policies().collect::<Vec<_>>());
        assert_eq!(shown(cached), shown(&then), "{:?}", self.policies);
        assert_eq!(cached.retry_after(), then.retry_after());
        if let Some(wait) = cached.retry_after().filter(|_| self.is_enough(units)) {
            let later_us = self.store_us() + wait.as_micros() as u64;
            assert!(self.truth(units, later_us).is_allowed(), "{cached:?}");
        }
    }

    /// Returns whether waiting is enough. One of several buckets that does not start full may be
    /// forgotten during the wait.
    fn is_enough(&self, units: Units) -> bool {
        let charges = Self::charges(&self.policies, &self.key, units);
        charges.len() == 1 || charges.iter().all(|charge| charge.starts_full())
    }

    fn step(&mut self) {
        let reach_us = 1 << self.random.from(0..23);
        self.pass_us(reach_us);
        self.latest_us = self.latest_us.max(self.store_us());
        let cost = match self.random.from(0..10) {
            0 => 0,
            1..8 => 1,
            _ => self.random.from(1..14),
        };
        let owed = match self.random.from(0..10) {
            0 => self.random.from(0..6),
            _ => 0,
        };
        let units = (cost, owed);
        match self.random.from(0..40) {
            0..30 => self.ask(Operation::Take, units),
            30 => self.ask(Operation::TakeUpTo, units),
            31 => self.ask(Operation::Refund, units),
            32 => self.reset(),
            33 => {
                let back_us = self.random.from(0..2_000_000);
                if self.delay_us == 1 {
                    let back_us = self.here.now_us() - back_us;
                    self.here.set_us(back_us.max(self.others_us));
                }
            }
            _ => self.disturb(units),
        }
    }

    /// Lets another process check some of the buckets.
    fn disturb(&mut self, units: Units) {
        let now_us = self.store_us();
        if now_us < self.latest_us {
            return;
        }
        self.others_us = now_us;
        let which = self.random.from(0..self.policies.len() as u64) as usize;
        let charges = Self::charges(&self.policies, &self.key, units);
        let (charge, bucket) = (&charges[which..=which], &mut self.buckets[which..=which]);
        let decision = Check::new(Operation::Take, charge).decide(now_us, bucket);
        self.is_disturbed |= decision.is_allowed();
    }

    fn reset(&mut self) {
        let (policies, key) = (self.policies.clone(), self.key.clone());
        let charges = Self::charges(&policies, &key, (0, 0));
        let resetting = self.denials.resetting(&charges);
        self.buckets.fill(BucketWords::default());
        drop(resetting);
    }
}

impl Charge<'_> {
    fn starts_full(&self) -> bool {
        use crate::quota::{Params, arithmetic::Arithmetic, each};

        let at = each!(self.demand.quota, rule => self.at(rule, Operation::Take, 1 << 50));
        each!(self.demand.quota, rule => rule.read(None, &at).level == 0)
    }
}

fn play(scenes: u64, is_one_clock: bool) {
    let (mut from_cache, mut sent) = (0, 0);
    for seed in 0..scenes {
        let mut scene = Scene::new(seed, is_one_clock);
        for _ in 0..400 {
            scene.step();
        }
        from_cache += scene.from_cache;
        sent += scene.sent;
    }
    assert!(
        from_cache > sent / 4,
        "{from_cache} from the cache, {sent} sent"
    );
}

#[test]
fn a_cached_denial_is_what_the_store_would_return() {
    play(300, true);
}

#[test]
fn with_a_network_delay_no_caller_with_room_is_denied_and_no_wait_is_too_short() {
    play(300, false);
}
