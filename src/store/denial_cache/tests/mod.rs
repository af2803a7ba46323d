//! Against buckets decided in place, under clocks that are moved.

mod cases;

use std::{borrow::Cow, ops::Range};

use super::*;
use crate::{
    Clock, FixedWindow, Key, LeakyBucket, ManualClock, OnStoreFailure, Policy, Quota, SlidingLog,
    SlidingWindow, TokenBucket, charge::Demand, policy::Compiled, store::Slot,
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

/// That are asked for, and that may be owed.
type Units = (u64, u64);

/// Some policies of one caller, their buckets, and what is remembered of them.
struct Scene {
    random: Random,
    policies: Vec<Compiled>,
    slots: Vec<Slot>,
    key: Key,
    denials: Arc<DenialCache>,
    here: Arc<ManualClock>,
    /// By how much the store's clock is ahead.
    ahead_us: u64,
    /// The longest that a check or its answer is on its way.
    way_us: u64,
    /// The latest that it has been, as a clock may step back,
    latest_us: u64,
    /// and when others last took something: by their clocks it does not.
    others_us: u64,
    /// Somebody took since a denial was last remembered.
    is_disturbed: bool,
    given_again: u64,
    asked: u64,
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
                hash: SecretHasher::new(),
            },
            end_us: AtomicU64::new(0),
            given: RefundEpochs::new(),
            table: Table::default(),
        };
        let skew_us = random.from(0..10_000_000);
        Self {
            slots: policies.iter().map(|_| Slot::default()).collect(),
            policies,
            key: Key::from("ann"),
            denials: Arc::new(denials),
            here,
            ahead_us: if is_one_clock { 0 } else { skew_us },
            way_us: if is_one_clock { 1 } else { 20_000 },
            random,
            latest_us: 0,
            others_us: 0,
            is_disturbed: false,
            given_again: 0,
            asked: 0,
        }
    }

    fn store_us(&self) -> u64 {
        self.here.now_us() + self.ahead_us
    }

    fn pass_us(&mut self, most_us: u64) {
        let us = self.random.from(0..most_us);
        self.here.advance(Duration::from_micros(us));
    }

    /// Where some may be owed.
    fn legs<'s>(policies: &'s [Compiled], key: &'s Key, (cost, owed): Units) -> Vec<Charge<'s>> {
        let leg = |policy: &'s Compiled| {
            let mut asked = Demand::new(policy.demand.quota.clone(), cost);
            asked.overdraft = asked.quota.extra(asked.quota.level_of(owed)) as i64;
            policy.charge(Cow::Borrowed(key), Cow::Owned(asked))
        };
        policies.iter().map(leg).collect()
    }

    /// What would be decided now; nothing changes.
    fn truth(&self, units: Units, at_us: u64) -> Decision {
        let legs = Self::legs(&self.policies, &self.key, units);
        let mut slots = self.slots.clone();
        Check::new(Operation::Take, &legs).decide(at_us, &mut slots)
    }

    fn ask(&mut self, operation: Operation, units: Units) {
        let (policies, key) = (self.policies.clone(), self.key.clone());
        let legs = Self::legs(&policies, &key, units);
        let check = Check::new(operation, &legs);
        let pending = match self.denials.look_up(&check) {
            Lookup::Denied(decision) => {
                assert_eq!(operation, Operation::Take);
                self.given_again += 1;
                self.compare(&decision, units);
                return;
            }
            Lookup::Ask(pending) => pending,
        };
        self.asked += 1;
        self.pass_us(self.way_us);
        let decision = check.decide(self.store_us(), &mut self.slots);
        self.pass_us(self.way_us);
        record_decision(pending, &decision);
        // What is impossible says nothing new.
        self.is_disturbed &= decision.verdict() == Verdict::Impossible;
    }

    fn compare(&mut self, given: &Decision, units: Units) {
        let truth = self.truth(units, self.store_us());
        assert_eq!(given.verdict(), Verdict::Denied);
        assert_eq!(truth.verdict(), Verdict::Denied, "{given:?}");
        assert_eq!(given.source(), crate::Source::Cache);
        if self.is_disturbed {
            return;
        }
        // As of an instant that is not later, and early by no more than what
        // was on its way.
        let early_us = self.store_us() - given.decided_at_us();
        assert!(early_us <= 2 * self.way_us, "{early_us}");
        if self.way_us == 1 {
            assert_eq!(early_us, 0);
        }
        let then = self.truth(units, given.decided_at_us());
        let said = |decision: &Decision| format!("{:?}", decision.policies().collect::<Vec<_>>());
        assert_eq!(said(given), said(&then), "{:?}", self.policies);
        assert_eq!(given.retry_after(), then.retry_after());
        if let Some(wait) = given.retry_after().filter(|_| self.is_enough(units)) {
            let later_us = self.store_us() + wait.as_micros() as u64;
            assert!(self.truth(units, later_us).is_allowed(), "{given:?}");
        }
    }

    /// Whether waiting is: one of several who starts with less may be forgotten
    /// meanwhile.
    fn is_enough(&self, units: Units) -> bool {
        let legs = Self::legs(&self.policies, &self.key, units);
        legs.len() == 1 || legs.iter().all(|leg| leg.starts_full())
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
                if self.way_us == 1 {
                    let back_us = self.here.now_us() - back_us;
                    self.here.set_us(back_us.max(self.others_us));
                }
            }
            _ => self.disturb(units),
        }
    }

    /// Others, elsewhere, take from some of the buckets, and are denied there.
    fn disturb(&mut self, units: Units) {
        let now_us = self.store_us();
        if now_us < self.latest_us {
            return;
        }
        self.others_us = now_us;
        let which = self.random.from(0..self.policies.len() as u64) as usize;
        let legs = Self::legs(&self.policies, &self.key, units);
        let (leg, slot) = (&legs[which..=which], &mut self.slots[which..=which]);
        let decision = Check::new(Operation::Take, leg).decide(now_us, slot);
        self.is_disturbed |= decision.is_allowed();
    }

    fn reset(&mut self) {
        let (policies, key) = (self.policies.clone(), self.key.clone());
        let legs = Self::legs(&policies, &key, (0, 0));
        let resetting = self.denials.resetting(&legs);
        self.slots.fill(Slot::default());
        drop(resetting);
    }
}

impl Charge<'_> {
    fn starts_full(&self) -> bool {
        use crate::quota::{Params, arithmetic::Arithmetic, each};

        let at = each!(self.demand.quota, rule => self.at(rule, Operation::Take, 1 << 50));
        each!(self.demand.quota, rule => rule.read(None, at).level == 0)
    }
}

fn play(scenes: u64, is_one_clock: bool) {
    let (mut given_again, mut asked) = (0, 0);
    for seed in 0..scenes {
        let mut scene = Scene::new(seed, is_one_clock);
        for _ in 0..400 {
            scene.step();
        }
        given_again += scene.given_again;
        asked += scene.asked;
    }
    assert!(given_again > asked / 4, "{given_again} of {asked}");
}

#[test]
fn what_is_given_again_is_what_the_store_would_say() {
    play(300, true);
}

#[test]
fn with_a_way_between_two_clocks_nobody_is_refused_who_has_room_nor_told_too_little() {
    play(300, false);
}
