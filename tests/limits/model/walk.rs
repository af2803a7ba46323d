//! A random walk: the same steps in Redis, in memory and in the model.

use std::{collections::VecDeque, future::poll_fn, ops::Range, rc::Rc};

use super::bench::{Bench, START_US, limiter, spread_phase_ms};
use crate::support::prelude::*;
use crate::support::{
    oracle::{Fields, Op, Oracle, Plan, Spec},
    plans::{Algorithm, any_plan, any_scale_ms},
};

/// Whether the clock may step back, and which stores can be compared then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Redis expires drained keys when the test says so, and memory forgets them by itself.
    Forwards,
    /// Drained buckets are reset before the clock steps back, because a forgotten bucket is the
    /// same as one that never existed.
    Backwards,
    /// Only Redis, which forgets nothing here, because it expires keys by a clock of its own.
    BackwardsInRedis,
}

/// Enough that some of their checks share a call.
const CALLERS: u64 = 8;

/// 2005 to 2105: from the first times at which windows take 13 digits.
const FIRST_US: u64 = 1_104_537_600_000_000;
const LAST_US: u64 = 4_260_211_200_000_000;
/// In April 1970: a bucket of 104 days, the deepest, is not written with a time before 1970.
const EARLIEST_US: u64 = 9_100_000_000_000;
/// A window of 100 years that starts then ends before 2^53 microseconds.
const END_US: u64 = 5_800_000_000_000_000;
/// Longer steps of the clock are rare.
const LONG_US: u128 = 5 * 365 * 86_400_000_000;

pub(super) struct Walk<'b> {
    bench: &'b Bench,
    pub(super) random: Random,
    course: Course,
    /// The same policies with other numbers.
    variants: Vec<Variant>,
    present: usize,
    pub(super) oracle: Oracle,
    pub(super) now_us: u64,
    first_caller: u64,
    /// Instants at which something changes.
    soon_us: Vec<u64>,
    /// The latest events, with the instant and the numbers.
    history: VecDeque<(u64, usize, Event)>,
    pub(super) counts: Counts,
}

/// What is shown of a walk that fails.
#[derive(Debug)]
#[allow(dead_code, reason = "shown with `Debug`")]
pub(super) enum Event {
    Reset { caller: u64 },
    ForgetsDrained { keys: Vec<String> },
    Asks { caller: u64, op: Op },
    Releases { caller: u64, number: u64 },
}

pub(super) struct Variant {
    pub(super) plans: Rc<[Plan]>,
    pub(super) redis: Limiter,
    pub(super) memory: Option<Limiter>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) steps: u64,
    pub(super) denied: u64,
    pub(super) waits: u64,
    pub(super) ambiguous: u64,
}

impl<'b> Walk<'b> {
    /// Starts a walk with settings and callers of its own.
    pub(super) fn new(bench: &'b Bench, seed: u64, setting: u64, algorithms: &[Algorithm]) -> Self {
        let mut random = Random::from_seed(seed ^ (setting << 32));
        let course = match random.below(5) {
            0 => Course::Backwards,
            1 => Course::BackwardsInRedis,
            _ => Course::Forwards,
        };
        let count = if random.percent(50) { 1 } else { 3 };
        let scales: Vec<u64> = algorithms
            .iter()
            .map(|algorithm| any_scale_ms(&mut random, *algorithm))
            .collect();
        let memory = bench.new_memory(random.percent(50));
        let mut plans: Vec<Vec<Plan>> = Vec::new();
        for _ in 0..count {
            let each = algorithms.iter().zip(&scales);
            let each =
                each.map(|(algorithm, scale_ms)| any_plan(&mut random, *algorithm, *scale_ms));
            let mut each: Vec<Plan> = each.collect();
            if each.len() == 1 {
                // No other policy denies.
                each[0].strikes = false;
            }
            plans.push(each);
        }
        // A cached denial does not prolong a ban, its strikes come later, and it does not know what a
        // clock that stepped back has cut off the time of strikes.
        let is_back = course != Course::Forwards;
        let changes = |plan: &Plan| {
            plan.strikes
                || matches!(plan.spec, Spec::Penalty { prolongs, .. } if prolongs || is_back)
        };
        let redis = match plans.iter().flatten().any(changes) {
            true => &bench.uncached,
            false => &bench.redis,
        };
        let mut variants = Vec::new();
        for plans in plans {
            let _inside = bench.runtime.enter();
            variants.push(Variant {
                redis: limiter(redis.clone(), &plans),
                memory: (course != Course::BackwardsInRedis)
                    .then(|| limiter(memory.clone(), &plans)),
                plans: plans.into(),
            });
        }
        let now_us = match random.below(3) {
            0 => random.between(FIRST_US, LAST_US),
            _ => START_US,
        };
        bench.clock.set_us(now_us);
        Self {
            bench,
            random,
            course,
            variants,
            present: 0,
            oracle: Oracle::default(),
            now_us,
            first_caller: setting * CALLERS,
            soon_us: Vec::new(),
            history: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    pub(super) async fn learn_phases(&mut self) {
        for variant in &self.variants {
            for plan in variant.plans.iter() {
                if !plan.spec.is_spread() {
                    continue;
                }
                for caller in self.callers() {
                    let phase_ms = spread_phase_ms(&plan.spec, caller).await;
                    self.oracle.set_phase(plan.spec, caller, phase_ms);
                }
            }
        }
    }

    pub(super) fn variant(&self) -> &Variant {
        &self.variants[self.present]
    }

    pub(super) fn plans(&self) -> Rc<[Plan]> {
        Rc::clone(&self.variants[self.present].plans)
    }

    pub(super) fn callers(&self) -> Range<u64> {
        self.first_caller..self.first_caller + CALLERS
    }

    pub(super) fn any_variant(&mut self) {
        self.present = self.random.below(self.variants.len() as u64) as usize;
    }

    pub(super) fn note(&mut self, event: Event) {
        if self.history.len() == 20 {
            self.history.pop_front();
        }
        self.history.push_back((self.now_us, self.present, event));
    }

    #[track_caller]
    pub(super) fn fail(&self, why: &str) -> ! {
        for (number, variant) in self.variants.iter().enumerate() {
            println!("numbers {number}: {:#?}", variant.plans);
        }
        println!("{:?}, callers from {}", self.course, self.first_caller);
        for (at_us, numbers, event) in &self.history {
            println!("at {at_us} us, numbers {numbers}: {event:?}");
        }
        panic!("{why}");
    }

    pub(super) fn set_clock(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.bench.clock.set_us(now_us);
    }

    /// Moves the clock forward or, if the walk allows it, back.
    pub(super) async fn move_clock(&mut self) {
        let plans = self.plans();
        let scale_us = self.random.one_of(&plans).spec.scale_us();
        let now_us = self.now_us;
        let random = &mut self.random;
        let next_us = match random.below(20) {
            0..7 => now_us,
            7..9 => now_us + random.magnitude(1, scale_us.saturating_mul(3)),
            9..12 => now_us + random.below(scale_us / 8 + 2),
            12..13 => now_us + random.below(scale_us + 1),
            13..19 => match &self.soon_us[..] {
                [] => now_us,
                soon => (random.one_of(soon) + random.below(3) - 1).max(now_us),
            },
            _ if self.course == Course::Forwards => now_us + 1,
            _ => {
                let by_us = random.magnitude(1, scale_us.saturating_mul(3));
                now_us.saturating_sub(by_us).max(EARLIEST_US)
            }
        };
        if next_us < now_us && self.course == Course::Backwards {
            self.reset_all(|oracle, policy, caller| oracle.is_drained(policy, caller, now_us))
                .await;
        }
        self.set_clock(next_us.min(END_US.max(now_us)));
    }

    async fn reset_all(&mut self, which: impl Fn(&Oracle, usize, u64) -> bool) {
        for caller in self.callers() {
            let mut policies = 0..self.variant().plans.len();
            if policies.any(|policy| which(&self.oracle, policy, caller)) {
                self.reset(caller).await;
            }
        }
    }

    pub(super) async fn reset(&mut self, caller: u64) {
        self.note(Event::Reset { caller });
        let variant = self.variant();
        let mut reset = variant.redis.reset(caller).await;
        if let Some(memory) = &variant.memory {
            reset = reset.and(memory.reset(caller).await);
        }
        reset.expect("a reset");
        self.oracle.forget(caller);
    }

    /// Deletes every drained key in Redis.
    pub(super) fn forget_drained(&mut self) {
        if self.course != Course::Forwards {
            return;
        }
        let mut keys = Vec::new();
        for caller in self.callers() {
            for (policy, key) in self.variant().redis.storage_keys(caller).iter().enumerate() {
                if self.oracle.is_drained(policy, caller, self.now_us) {
                    keys.push(key.clone());
                }
            }
        }
        if !keys.is_empty() {
            let words = ["DEL"].into_iter().chain(keys.iter().map(String::as_str));
            self.bench.server.command(&words.collect::<Vec<_>>());
        }
        self.note(Event::ForgetsDrained { keys });
    }

    /// Makes one check in Redis, in memory and in the model.
    pub(super) async fn ask(&mut self, caller: u64, op: Op) -> Fields {
        let mut shown = self.ask_all(&[(caller, op)]).await;
        shown.pop().expect("one")
    }

    /// Makes checks of different callers at once. None of them changes what another finds.
    pub(super) async fn ask_all(&mut self, asked: &[(u64, Op)]) -> Vec<Fields> {
        let plans = self.plans();
        let mut expected = Vec::new();
        for &(caller, op) in asked {
            if self.oracle.is_ambiguous(&plans, caller, self.now_us) {
                self.counts.ambiguous += 1;
                self.reset(caller).await;
            }
            self.note(Event::Asks { caller, op });
            self.counts.steps += 1;
            expected.push(self.oracle.decide(&plans, caller, op, self.now_us));
        }
        let variant = self.variant();
        let redis = asked
            .iter()
            .map(|&(caller, op)| put(&variant.redis, caller, op));
        for (answer, expected) in together(redis).await.into_iter().zip(&expected) {
            self.compare(answer, expected, "Redis");
        }
        if let Some(memory) = &variant.memory {
            for (&(caller, op), expected) in asked.iter().zip(&expected) {
                self.compare(put(memory, caller, op).await, expected, "memory");
            }
        }
        expected
    }

    pub(super) fn compare(
        &self,
        answer: Result<Decision, StoreError>,
        expected: &Fields,
        store: &str,
    ) {
        match answer {
            Ok(decision) if Fields::from(&decision) == *expected => {}
            Ok(decision) => self.fail(&format!(
                "{store} says\n{:#?}\nand not\n{expected:#?}",
                Fields::from(&decision)
            )),
            Err(error) => self.fail(&format!("{store} fails: {error}")),
        }
    }

    /// Lets each caller do something at one instant.
    pub(super) async fn step(&mut self) {
        self.move_clock().await;
        if self.random.percent(15) {
            self.any_variant();
        }
        if self.random.percent(7) {
            self.forget_drained();
        }
        let mut asked = Vec::new();
        for caller in self.callers() {
            let Some(op) = self.any_op() else {
                self.reset(caller).await;
                continue;
            };
            match op {
                Op::Ban(_) => {
                    self.ban(caller, op).await;
                    asked.push((caller, Op::Peek));
                }
                _ => asked.push((caller, op)),
            }
        }
        let now_us = self.now_us;
        let mut denied = Vec::new();
        for (&(caller, op), shown) in asked.iter().zip(self.ask_all(&asked).await) {
            self.remember_moments(&shown);
            if let (Op::Check, Some(wait_us @ 1..)) = (op, shown.retry_us) {
                self.counts.denied += 1;
                if self.random.percent(40) {
                    denied.push((now_us + wait_us as u64, caller));
                }
            }
        }
        denied.sort_unstable();
        for (fits_at_us, caller) in denied {
            self.check_wait(caller, fits_at_us).await;
        }
    }

    /// Returns what a caller does; `None`: it is reset.
    fn any_op(&mut self) -> Option<Op> {
        let op = match self.random.below(39) {
            0 => return None,
            1..15 => Op::Check,
            15..23 => Op::CheckN(self.any_cost()),
            23..27 => Op::UpTo(self.any_cost()),
            27..30 => Op::Peek,
            30..33 => Op::Credit(self.any_cost()),
            _ => Op::Debit(self.any_debit()),
        };
        let plans = self.plans();
        let penalties = plans.iter().filter(|plan| plan.spec.is_penalty()).count();
        let is_of_units = matches!(op, Op::UpTo(_) | Op::Credit(_) | Op::Debit(_));
        Some(match op {
            _ if penalties == 0 => op,
            _ if is_of_units && penalties == plans.len() || self.random.percent(15) => {
                self.any_punishment()
            }
            _ => op,
        })
    }

    /// Returns mostly one strike, sometimes some or too many, and seldom a ban by hand.
    fn any_punishment(&mut self) -> Op {
        let plans = self.plans();
        let penalty = plans.iter().find(|plan| plan.spec.is_penalty());
        let spec = penalty.expect("a penalty").spec;
        let random = &mut self.random;
        match random.below(20) {
            0..10 => Op::Strike(1),
            10..18 => Op::Strike(random.below(spec.capacity() + 3)),
            18 => Op::Strike(random.one_of(&[u64::MAX, (1 << 53) - 1])),
            _ => Op::Ban(random.magnitude(1, spec.scale_us() / 500)),
        }
    }

    async fn ban(&mut self, caller: u64, op: Op) {
        let Op::Ban(ban_ms) = op else { return };
        let plans = self.plans();
        if self.oracle.is_ambiguous(&plans, caller, self.now_us) {
            self.reset(caller).await;
        }
        self.note(Event::Asks { caller, op });
        self.oracle.decide(&plans, caller, op, self.now_us);
        let (variant, ban) = (self.variant(), Duration::from_millis(ban_ms));
        let mut banned = variant.redis.ban(caller, ban).await;
        if let Some(memory) = &variant.memory {
            banned = banned.and(memory.ban(caller, ban).await);
        }
        banned.expect("a ban");
    }

    pub(super) fn remember_moments(&mut self, shown: &Fields) {
        let waits = shown.lines.iter().flat_map(|line| {
            let waits = [line.retry_us.unwrap_or(0), line.reset_us];
            waits.into_iter().filter(|wait_us| *wait_us > 0)
        });
        for wait_us in waits {
            if wait_us > LONG_US && self.random.percent(90) {
                continue;
            }
            if self.soon_us.len() == 12 {
                self.soon_us.remove(0);
            }
            self.soon_us.push(self.now_us + wait_us as u64);
        }
    }

    /// Checks that a denied caller would be admitted then, and not one microsecond earlier.
    async fn check_wait(&mut self, caller: u64, fits_at_us: u64) {
        // A caller that starts with few units may be forgotten while another policy makes it
        // wait.
        let plans = self.plans();
        let starts_poor = |plan: &Plan| {
            plan.spec.missing_at_first() > plan.spec.capacity().saturating_sub(plan.cost)
        };
        if plans.len() > 1 && plans.iter().any(starts_poor) {
            return;
        }
        // The wait of another caller may have been longer.
        if fits_at_us <= self.now_us {
            return;
        }
        // If the caller may be forgotten before, its wait proves nothing.
        let is_ambiguous = |at_us| self.oracle.is_ambiguous(&plans, caller, at_us);
        if fits_at_us > END_US || is_ambiguous(fits_at_us - 1) || is_ambiguous(fits_at_us) {
            return;
        }
        self.set_clock(fits_at_us - 1);
        if self.ask(caller, Op::Peek).await.verdict == Verdict::Allowed {
            self.fail("a microsecond less would do");
        }
        self.set_clock(fits_at_us);
        if self.ask(caller, Op::Peek).await.verdict != Verdict::Allowed {
            self.fail("the wait is not enough");
        }
        self.counts.waits += 1;
    }

    /// Returns no cost, a few units, about the capacity, more, or the largest number.
    fn any_cost(&mut self) -> u64 {
        let plans = self.plans();
        let plan = plans[self.random.below(plans.len() as u64) as usize];
        let capacity = plan.spec.capacity();
        let random = &mut self.random;
        match random.below(11) {
            0 => 0,
            1..6 => random.between(1, 4),
            6..8 => random.below(capacity + 1),
            8..10 => (capacity + random.below(4)).saturating_sub(2),
            _ if random.percent(50) => u64::MAX,
            _ => capacity + 1 + random.below(capacity + 1),
        }
    }

    /// Returns a debit: mostly one that is paid back soon, seldom the largest debt or more.
    fn any_debit(&mut self) -> u64 {
        let plans = self.plans();
        let plan = plans[self.random.below(plans.len() as u64) as usize];
        let most = plan.spec.capacity() + plan.debt.unwrap_or(plan.most_debt());
        let random = &mut self.random;
        match random.below(40) {
            0..20 => random.between(0, 4),
            20..35 => random.below(3 * plan.spec.capacity() + 3),
            35..37 => random.magnitude(1, most + 2),
            37 | 38 => (most + random.below(4)).saturating_sub(2),
            _ => random.one_of(&[u64::MAX, (1 << 53) - 1]),
        }
    }
}

/// Polls all until each has ended.
pub(super) async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        match futures.iter().all(|(_, output)| output.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    let outputs = futures.into_iter();
    outputs.filter_map(|(_, output)| output).collect()
}

async fn put(limiter: &Limiter, caller: u64, op: Op) -> Result<Decision, StoreError> {
    match op {
        Op::Check => limiter.check(caller).await,
        Op::CheckN(units) => limiter.check_n(caller, units).await,
        Op::Peek => limiter.peek(caller).await,
        Op::UpTo(units) => limiter.take_up_to(caller, units).await,
        Op::Credit(units) => {
            let refund = limiter.credit(caller, units).await;
            refund.map(|refund| refund.decision().clone())
        }
        Op::Debit(units) => limiter.debit(caller, units).await,
        Op::Strike(strikes) => limiter.strike(caller, strikes).await,
        Op::Ban(_) => panic!("a ban has no decision"),
        Op::Acquire { .. } => panic!("`acquire` has an operation of its own"),
    }
}
