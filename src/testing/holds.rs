//! The part of the suite about units that requests hold.

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use super::{Mismatch, Random, fields};
use crate::{
    Clock, ConfigError, Decision, FixedWindow, Key, LeakyBucket, ManualClock, OnStoreFailure,
    Policy, SlidingLog, SlidingWindow, Source, StoreError, TokenBucket,
    charge::{Charge, Check, Operation},
    policy::Compiled,
    quota::hold::next_extension,
    store::{BucketWords, Store},
};

/// How many forms of quotas may hold.
const KINDS: u64 = 9;
const CALLERS: u64 = 3;

/// Makes `steps` random checks of policies whose requests hold units, on the store that `make`
/// returns: takes, settlements, renewals and refunds, late and early ones, with quotas whose numbers
/// change.
///
/// [`conformance`](super::conformance) does it with few steps, too. `make` is called once. The store
/// must use the clock that it gets, and start empty. If the clock also `steps_back`, the store must
/// forget nothing while the walk lasts, and repeat no denial from a cache.
///
/// # Errors
///
/// Returns the first [`Mismatch`], or the store's own error. The same seed returns it again.
pub async fn holds_conformance<S: Store>(
    seed: u64,
    steps: usize,
    steps_back: bool,
    make: impl FnOnce(Arc<ManualClock>) -> S,
) -> Result<(), Mismatch> {
    let clock = Arc::new(ManualClock::new());
    let mut walk = Walk {
        tested: make(Arc::clone(&clock)),
        model: HashMap::new(),
        clock,
        steps_back,
        random: Random(seed),
        // One that never holds is among them.
        policies: Vec::new(),
        open: Vec::new(),
        setting: 0,
    };
    walk.new_setting()?;
    for step in 0..steps {
        walk.step(step).await?;
    }
    Ok(())
}

fn bucket_of(charge: &Charge<'_>) -> (String, char, Vec<u8>) {
    let key = charge.key_bytes().to_vec();
    (charge.policy().to_owned(), charge.kind(), key)
}

/// Units that a request holds.
#[derive(Clone, Copy, Debug)]
struct Open {
    policy: usize,
    caller: u64,
    units: u64,
    /// That of the store that is tested, and that of the model.
    generation: (u64, u64),
}

struct Walk<S> {
    tested: S,
    model: HashMap<(String, char, Vec<u8>), BucketWords>,
    clock: Arc<ManualClock>,
    steps_back: bool,
    random: Random,
    /// For each policy, the same name with several numbers.
    policies: Vec<Vec<Compiled>>,
    open: Vec<Open>,
    setting: u64,
}

impl<S: Store> Walk<S> {
    /// Starts over with other policies.
    fn new_setting(&mut self) -> Result<(), ConfigError> {
        self.setting += 1;
        self.open.clear();
        self.policies.clear();
        for place in 0..1 + self.random.below(3) {
            let name = format!("policy {} {place}", self.setting);
            let kind = self.random.below(KINDS);
            let scale_ms = 10_u64.pow(1 + self.random.below(5) as u32);
            let period = Duration::from_millis(1 + self.random.below(scale_ms));
            let rate = (1 + self.random.below(20), period);
            let is_held = place == 0 || self.random.below(3) > 0;
            // Which numbers a caller starts with again, who had units at first, is not defined. Nor is
            // when periods have refilled what was taken under another burst.
            let numbers = match kind {
                1 | 2 => 1,
                _ => 1 + self.random.below(2),
            };
            let lifetime = Duration::from_millis(1_000 + self.random.below(4_000));
            let mut compiled: Vec<Compiled> = Vec::new();
            for _ in 0..numbers {
                let policy = self.policy(&name, kind, rate);
                let policy = match is_held {
                    true => policy.hold_for(lifetime),
                    false => policy,
                };
                compiled.push(policy.compile(OnStoreFailure::Deny)?);
            }
            self.policies.push(compiled);
        }
        Ok(())
    }

    /// Returns a policy with any capacity. Its rate is given, because it decides when a store may
    /// forget a bucket.
    fn policy(&mut self, name: &str, kind: u64, (limit, period): (u64, Duration)) -> Policy {
        let room = 1 + self.random.below(30);
        let bucket = TokenBucket::new(limit, period).burst(room);
        let name = name.to_owned();
        match kind {
            0 => Policy::new(name, bucket),
            1 => Policy::new(name, bucket.initial(self.random.below(room + 1))),
            2 => Policy::new(name, bucket.refill_at_once()),
            3 => Policy::new(name, TokenBucket::without_refill(room)),
            4 => Policy::new(name, LeakyBucket::new(limit, period).capacity(room)),
            5 => Policy::new(name, FixedWindow::new(room, period)),
            6 => Policy::new(name, FixedWindow::new(room, period).aligned()),
            7 => Policy::new(name, SlidingWindow::new(room, period)),
            _ => Policy::new(name, SlidingLog::new(room, period)),
        }
    }

    async fn step(&mut self, step: usize) -> Result<(), Mismatch> {
        if self.random.below(200) == 0 {
            self.new_setting()?;
        }
        let pause = match self.random.below(8) {
            0..=4 => Duration::from_micros(self.random.below(300_000)),
            5 => Duration::from_millis(self.random.below(3_000)),
            6 => self.random.pause(),
            _ => Duration::ZERO,
        };
        if self.steps_back && self.random.below(50) == 0 {
            let now_us = self.clock.now_us();
            self.clock.set_us(now_us - self.random.below(10_000_000));
        }
        self.clock.advance(pause);
        match self.random.below(20) {
            0 => self.reset().await,
            1 => self.ask(step, Operation::Peek).await,
            2 => self.ask(step, Operation::Debit).await,
            3 => self.ask(step, Operation::TakeUpTo).await,
            4..=11 => self.ask(step, Operation::Take).await,
            12 | 13 => self.end(step, Operation::Renew).await,
            14 => self.end(step, Operation::Refund).await,
            _ => self.end(step, Operation::Settle).await,
        }
    }

    fn chosen(&mut self, policy: usize) -> Option<Compiled> {
        let numbers = self.policies.get(policy)?;
        let number = self.random.below(numbers.len() as u64) as usize;
        numbers.get(number).cloned()
    }

    /// Asks all policies.
    async fn ask(&mut self, step: usize, operation: Operation) -> Result<(), Mismatch> {
        let caller = self.random.below(CALLERS);
        let key = Key::from(caller);
        let units = self.random.below(9);
        let mut charges: Vec<Charge<'_>> = Vec::new();
        for place in 0..self.policies.len() {
            let Some(policy) = self.chosen(place) else {
                continue;
            };
            let mut demand = policy.demand.of_units(units);
            if operation == Operation::Debit {
                demand.may_owe(self.random.below(20));
            }
            let mut charge = policy.charge(Cow::Owned(key.clone()), Cow::Owned(demand));
            // Sometimes some of the cost is charged at once.
            let held = match (operation, self.random.below(5)) {
                (Operation::Take, 0) => self.random.below(units + 1),
                (Operation::Take, 1..) => units,
                _ => 0,
            };
            charge.hold(held);
            charges.push(charge);
        }
        let none = (0, 0);
        let decided = self.compare(step, operation, &charges, none).await?;
        let open = decided.into_iter().enumerate();
        let open = open.map(|(policy, (units, generation))| Open {
            policy,
            caller,
            units,
            generation,
        });
        self.open.extend(open.filter(|open| open.units > 0));
        Ok(())
    }

    /// Ends or renews what a request holds. Sometimes it does so once more later.
    async fn end(&mut self, step: usize, operation: Operation) -> Result<(), Mismatch> {
        let Some(last) = self.open.len().checked_sub(1) else {
            return Ok(());
        };
        let place = self.random.below(last as u64 + 1) as usize;
        let open = self.open.swap_remove(place);
        let Some(policy) = self.chosen(open.policy) else {
            return Ok(());
        };
        let used = match (operation, self.random.below(4)) {
            (Operation::Settle, 0) => open.units,
            (Operation::Settle, 1) => 0,
            (Operation::Settle, 2) => self.random.below(2 * open.units + 3),
            (Operation::Settle, _) => self.random.below(open.units + 1),
            (Operation::Refund, _) => open.units,
            _ => 0,
        };
        let mut demand = policy.demand.of_units(used);
        if operation == Operation::Settle {
            demand.may_owe(self.random.below(8));
        }
        let is_extension = operation == Operation::Renew;
        if let Some(hold) = &mut demand.hold {
            hold.units = open.units;
            hold.beyond = used.saturating_sub(open.units);
            hold.extension = if is_extension { next_extension() } else { 0 };
        }
        let key = Cow::Owned(Key::from(open.caller));
        let charges = [policy.charge(key, Cow::Owned(demand))];
        let decided = self.compare(step, operation, &charges, open.generation);
        let decided = decided.await?;
        if is_extension && self.random.below(3) == 0 {
            let bucket = bucket_of(&charges[0]);
            let words = |model: &HashMap<_, BucketWords>| {
                let words = model.get(&bucket)?;
                Some((words.state.clone(), words.held.clone()))
            };
            let before = words(&self.model);
            self.compare(step, operation, &charges, open.generation)
                .await?;
            if words(&self.model) != before {
                let text = format!("step {step}: an extension moved units twice: {charges:?}");
                return Err(Mismatch(text));
            }
        }
        match (operation, decided.first()) {
            (Operation::Renew, Some((units @ 1.., generation))) => self.open.push(Open {
                units: *units,
                generation: *generation,
                ..open
            }),
            _ if self.random.below(20) == 0 => self.open.push(open),
            _ => {}
        }
        Ok(())
    }

    async fn reset(&mut self) -> Result<(), Mismatch> {
        let key = Key::from(self.random.below(CALLERS));
        let mut charges: Vec<Charge<'_>> = Vec::new();
        for policy in self.policies.iter().filter_map(|numbers| numbers.first()) {
            charges.push(policy.charge(Cow::Borrowed(&key), Cow::Borrowed(&policy.demand)));
        }
        self.tested.reset(&charges).wait().await?;
        for charge in &charges {
            self.model.remove(&bucket_of(charge));
        }
        Ok(())
    }

    /// Decides in the model, which forgets nothing.
    fn decide(&mut self, check: &Check<'_>) -> Decision {
        let stored = |charge| self.model.get(&bucket_of(charge)).cloned();
        let stored = check.charges().iter().map(stored);
        let mut words: Vec<BucketWords> = stored.map(Option::unwrap_or_default).collect();
        let decision = check.decide(self.clock.now_us(), &mut words);
        for (charge, mut words) in check.charges().iter().zip(words) {
            if words.drained_at_us.take().is_some() {
                self.model.insert(bucket_of(charge), words);
            }
        }
        decision
    }

    /// Asks the store and the model. `generation`: where the units that a check ends were held.
    /// Returns how many units each policy holds then, and where.
    async fn compare(
        &mut self,
        step: usize,
        operation: Operation,
        charges: &[Charge<'_>],
        generation: (u64, u64),
    ) -> Result<Vec<(u64, (u64, u64))>, Mismatch> {
        let of_tested = in_generation(charges, generation.0);
        let check = Check::new(operation, &of_tested);
        let tested: Result<_, StoreError> = self.tested.check(&check).wait().await;
        let of_model = in_generation(charges, generation.1);
        let (tested, model) = (tested?, self.decide(&Check::new(operation, &of_model)));
        // A repeated denial does not know of what was settled since.
        let is_repeated = tested.source() == Source::Cache;
        let is_as_strict = tested.verdict() == model.verdict()
            && tested.retry_after() <= model.retry_after().or(Some(Duration::MAX));
        if fields(&tested) == fields(&model) || is_repeated && is_as_strict {
            let decided = tested.policies().zip(model.policies());
            let decided = decided.map(|(tested, model)| {
                let generation = (tested.generation(), model.generation());
                (model.held_by_request(), generation)
            });
            return Ok(decided.collect());
        }
        Err(Mismatch(format!(
            "step {step}, {operation:?} of {charges:#?}: {:?} decided\n{:#?}\nand should decide\n{:#?}",
            tested.source(),
            fields(&tested),
            fields(&model)
        )))
    }
}

/// Returns the charges about units that were held in this generation.
fn in_generation<'a>(charges: &[Charge<'a>], generation: u64) -> Vec<Charge<'a>> {
    let mut charges = charges.to_vec();
    for charge in &mut charges {
        if let Some(hold) = &mut charge.demand.to_mut().hold {
            hold.generation = generation;
        }
    }
    charges
}
