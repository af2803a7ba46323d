//! Random takes, releases, losses, delays, repeats and reorderings, against an exact
//! count of what callers hold.

use super::*;
use crate::{
    quota::{
        arithmetic::{Arithmetic, Change, ReadContext, State},
        concurrency::ConcurrencyParams,
    },
    util::split_mix::SplitMix64 as Random,
};

const LIMIT: u64 = 12;
const RULE: ConcurrencyParams = ConcurrencyParams {
    limit: LIMIT,
    lifetime_ms: 30_000,
};
const NOW_US: u64 = 1_767_225_600_000_000;

/// The store: one bucket.
#[derive(Default)]
struct Bucket(Option<State>);

impl Bucket {
    fn at(statement: Option<&Statement>, units: u64) -> ReadContext<'_> {
        ReadContext {
            now_us: NOW_US,
            most: LIMIT.saturating_sub(units),
            statement,
            ..ReadContext::default()
        }
    }

    fn units(&self) -> u64 {
        RULE.read(self.0.as_deref(), &Self::at(None, 0)).level
    }

    /// Executes a message. Returns whether the store granted its take.
    fn execute(&mut self, message: &Message) -> bool {
        let at = &Self::at(Some(&message.statement), message.units);
        let standing = RULE.read(self.0.as_deref(), at);
        let is_granted = RULE.fits(&standing, message.units, 0);
        let change = match message.take {
            None => Change::Renew,
            Some(_) if is_granted => Change::Take(message.units),
            Some(_) => Change::Take(0),
        };
        if change != Change::Take(0) || standing.unsaved {
            self.0 = Some(RULE.write(|| self.0.take(), &standing, change, at));
        }
        is_granted
    }
}

#[derive(Clone, Debug)]
struct Message {
    process: usize,
    /// The number of the take; `None` for a statement alone.
    take: Option<usize>,
    units: u64,
    statement: Statement,
}

/// A take whose caller waits.
struct Pending {
    number: usize,
    group: u64,
    units: u64,
    /// The answer, once the store has executed the message.
    granted: Option<bool>,
}

struct Process {
    count: Count,
    version: u64,
    is_due: bool,
    /// The statement under way, and whether the store has executed it.
    stating: Option<bool>,
    /// A lost message may still arrive.
    has_lost: bool,
    pending: Vec<Pending>,
    held: Vec<u64>,
}

impl Process {
    fn decide(&mut self, group: u64, outcome: Outcome) {
        let version = &mut self.version;
        self.is_due |= self.count.decide(group, outcome, || {
            *version += 4;
            *version
        });
        self.has_lost |= outcome == Outcome::Lost;
    }
}

struct World {
    random: Random,
    bucket: Bucket,
    processes: [Process; 3],
    under_way: Vec<Message>,
    takes: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let process = |version| Process {
            count: Count::new(version),
            version,
            is_due: false,
            stating: None,
            has_lost: false,
            pending: Vec::new(),
            held: Vec::new(),
        };
        Self {
            processes: [4, 4 + random.below(100), 4].map(process),
            random,
            bucket: Bucket::default(),
            under_way: Vec::new(),
            takes: 0,
        }
    }

    fn held(&self) -> u64 {
        self.processes.iter().flat_map(|one| &one.held).sum()
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end.max(1) as u64) as usize
    }

    fn send(&mut self, process: usize, take: Option<(usize, u64)>, units: u64) {
        let one = &self.processes[process];
        let group = take.map(|(_, group)| group);
        let holder = process as u64 + 1;
        self.under_way.push(Message {
            process,
            take: take.map(|(number, _)| number),
            units,
            statement: one.count.statement(holder, group, one.has_lost),
        });
    }

    fn take(&mut self, process: usize) {
        let units = 1 + self.random.below(3);
        self.takes += 1;
        let (number, one) = (self.takes, &mut self.processes[process]);
        let group = one.count.begin();
        one.pending.push(Pending {
            number,
            group,
            units,
            granted: None,
        });
        self.send(process, Some((number, group)), units);
    }

    fn execute(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let place = self.below(self.under_way.len());
        let message = self.under_way.swap_remove(place);
        let is_granted = self.bucket.execute(&message);
        if message.take.is_none() && self.random.below(8) == 0 {
            // A statement may be repeated, at any later time.
            self.under_way.push(message.clone());
        }
        let one = &mut self.processes[message.process];
        match message.take {
            None => one.stating = one.stating.map(|_| true),
            Some(number) => {
                let mut pending = one.pending.iter_mut();
                if let Some(take) = pending.find(|take| take.number == number) {
                    take.granted = Some(is_granted);
                }
            }
        }
    }

    /// Gives a caller its answer, or lets it give up without one.
    fn answer(&mut self, process: usize, loses: bool) {
        let place = self.below(self.processes[process].pending.len());
        let one = &mut self.processes[process];
        let Some(take) = one.pending.get(place) else {
            return;
        };
        let (group, units) = (take.group, take.units);
        let outcome = match take.granted {
            _ if loses => Outcome::Lost,
            None => return,
            Some(true) => Outcome::Granted(units),
            Some(false) => Outcome::Denied,
        };
        one.pending.swap_remove(place);
        one.decide(group, outcome);
        if let Outcome::Granted(units) = outcome {
            one.held.push(units);
        }
    }

    fn release(&mut self, process: usize) {
        let place = self.below(self.processes[process].held.len());
        let one = &mut self.processes[process];
        if one.held.is_empty() {
            return;
        }
        let units = one.held.swap_remove(place);
        one.version += 4;
        one.count.release(units, one.version);
        one.is_due = true;
    }

    fn state(&mut self, process: usize) {
        let one = &mut self.processes[process];
        if one.is_due && one.stating.is_none() {
            (one.is_due, one.stating) = (false, Some(false));
            self.send(process, None, 0);
        }
    }

    /// Ends a statement: it is answered, or lost and tried again.
    fn end_statement(&mut self, process: usize, loses: bool) {
        let one = &mut self.processes[process];
        match one.stating {
            Some(true) if !loses => one.stating = None,
            Some(_) if loses => {
                (one.stating, one.is_due, one.has_lost) = (None, true, true);
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        let process = self.below(3);
        match self.random.below(40) {
            0..9 => self.take(process),
            9..21 => self.execute(),
            21..29 => self.answer(process, false),
            29 => self.answer(process, true),
            30..35 => self.release(process),
            35..38 => self.state(process),
            38 => self.end_statement(process, false),
            _ => {
                let loses = self.random.below(4) == 0;
                self.end_statement(process, loses);
            }
        }
    }

    /// Ends all takes, and lets each process make its statement.
    fn settle(&mut self) {
        // Some messages arrive only after everything else.
        let kept = self.below(4).min(self.under_way.len());
        let late = self.under_way.split_off(self.under_way.len() - kept);
        while !self.under_way.is_empty() {
            self.execute();
        }
        for process in 0..3 {
            while !self.processes[process].pending.is_empty() {
                self.answer(process, false);
                self.answer(process, true);
            }
            self.end_statement(process, true);
        }
        self.under_way = late;
        for process in 0..3 {
            self.processes[process].has_lost = true;
            self.state(process);
            if self.processes[process].stating.take().is_some() {
                let statement = self.under_way.pop().expect("a statement");
                self.bucket.execute(&statement);
            }
        }
        while !self.under_way.is_empty() {
            self.execute();
        }
    }
}

#[test]
fn a_store_counts_at_least_what_is_held_and_exactly_that_in_the_end() {
    let mut most = 0;
    for seed in 0..1_000 {
        let mut world = World::new(seed);
        for round in 0..4 {
            for step in 0..150 {
                world.step();
                let (held, counted) = (world.held(), world.bucket.units());
                assert!(
                    held <= counted,
                    "seed {seed}, round {round}, step {step}: {held} held, {counted} counted"
                );
                assert!(counted <= LIMIT, "seed {seed}: {counted} granted");
                most = most.max(held);
            }
            for process in &world.processes {
                assert_eq!(process.count.units(), process.held.iter().sum::<u64>());
            }
            world.settle();
            assert_eq!(
                world.held(),
                world.bucket.units(),
                "seed {seed}, round {round}"
            );
        }
    }
    assert_eq!(most, LIMIT, "the limit was never reached");
}

#[test]
fn a_renewal_restores_the_count_after_the_store_lost_its_data() {
    for seed in 0..1_000 {
        let mut world = World::new(seed);
        for _ in 0..200 {
            world.step();
        }
        world.bucket = Bucket::default();
        world.settle();
        for process in 0..3 {
            let one = &mut world.processes[process];
            one.version += 4;
            one.count.restate(one.version);
            one.is_due = true;
            world.state(process);
            let statement = world.under_way.pop().expect("a statement");
            world.bucket.execute(&statement);
        }
        assert_eq!(world.held(), world.bucket.units(), "seed {seed}");
    }
}

#[test]
fn takes_that_were_all_denied_change_no_statement() {
    let mut count = Count::new(4);
    let before = count.statement(1, None, false);
    for _ in 0..3 {
        let group = count.begin();
        assert!(!count.decide(group, Outcome::Denied, || unreachable!()));
        assert_eq!(count.statement(1, None, false), before);
    }
}
