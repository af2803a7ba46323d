//! A slow, obvious limiter, with which both stores must agree, field by field.
//!
//! It shares no code with the crate. It keeps lists of what was taken, without end, in wide
//! integers, and defines each algorithm a second time. It does not compute waits but searches
//! for them: the first microsecond at which the answer would differ.

// Not every test binary that includes this uses all of it.
#![allow(unused_imports)]

mod buckets;
mod fields;
mod penalty;
mod sliding;
mod spec;
mod windows;

use std::collections::HashMap;

use tower_throttle::Verdict;

use self::{
    buckets::Bucket,
    penalty::Record,
    sliding::{Log, Permits, Sliding},
    windows::{Interval, Window},
};
pub use self::{
    fields::{Fields, PolicyFields},
    spec::{DAY_MS, Kind, Plan, Spec, Start},
    windows::month_end_ms,
};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes each policy's own cost.
    Check,
    CheckN(u64),
    Peek,
    UpTo(u64),
    Credit(u64),
    Debit(u64),
    /// Strikes of all penalties.
    Strike(u64),
    /// Bans by all penalties, in milliseconds.
    Ban(u64),
    /// Takes permits, under a number by which they can be released; `None`: own costs.
    Acquire {
        units: Option<u64>,
        number: u64,
    },
}

impl Op {
    /// Returns whether a policy takes part. A penalty has strikes, and no units.
    pub fn is_for(self, plan: &Plan) -> bool {
        match self {
            Self::Credit(_) | Self::Debit(_) => !plan.spec.is_penalty(),
            Self::Strike(_) | Self::Ban(_) => plan.spec.is_penalty(),
            _ => true,
        }
    }
}

#[derive(Clone, Debug)]
enum State {
    Bucket(Bucket),
    Interval(Interval),
    Window(Window),
    Sliding(Sliding),
    Log(Log),
    Permits(Permits),
    Penalty(Record),
}

/// A caller that has taken nothing.
const NOBODY: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Kept {
    state: State,
    /// The numbers under which it was written.
    writer: Spec,
    /// From then on, a store may have forgotten it.
    forgotten_at_us: i128,
}

#[derive(Debug, Default)]
pub struct Oracle {
    kept: HashMap<(usize, u64), Kept>,
    /// When the windows of a caller start, if each caller has a time of its own.
    phases_ms: HashMap<(Spec, u64), i128>,
}

impl Oracle {
    pub fn set_phase(&mut self, spec: Spec, caller: u64, phase_ms: i128) {
        self.phases_ms.insert((spec, caller), phase_ms);
    }

    pub fn forget(&mut self, caller: u64) {
        self.kept
            .retain(|(_, who), kept| match (*who == caller, &mut kept.state) {
                (true, State::Permits(permits)) => {
                    permits.forget();
                    kept.forgotten_at_us = 0;
                    true
                }
                (is_forgotten, _) => !is_forgotten,
            });
    }

    /// Returns whether the key of this policy and caller may be absent.
    pub fn is_drained(&self, policy: usize, caller: u64, now_us: u64) -> bool {
        let kept = self.kept.get(&(policy, caller));
        kept.is_none_or(|kept| kept.forgotten_at_us <= i128::from(now_us))
    }

    /// Returns whether a store that has forgotten the bucket, as it may, decides differently
    /// from one that has not, because the numbers have changed.
    pub fn is_ambiguous(&self, plans: &[Plan], caller: u64, now_us: u64) -> bool {
        plans.iter().enumerate().any(|(policy, plan)| {
            let Some(kept) = self.kept.get(&(policy, caller)) else {
                return false;
            };
            let now = i128::from(now_us);
            if kept.writer == plan.spec || kept.forgotten_at_us > now {
                return false;
            }
            let (known, _) = self.open(policy, plan, caller, Op::Peek, now);
            let (new, _) = self.open(policy, plan, NOBODY, Op::Peek, now);
            // Under other numbers, bans may count that are forgotten.
            if let State::Penalty(record) = &known {
                return record.bans > 0;
            }
            // The level of a new caller is stored anew, and other numbers count it differently.
            let is_used_by_others = match &known {
                State::Bucket(bucket) => bucket.is_used_by_others(),
                State::Interval(interval) => interval.is_used_by_others(),
                _ => false,
            };
            let [known, new] = [&known, &new].map(|state| level(&plan.spec, state, now));
            known != new || new > 0 || is_used_by_others
        })
    }

    pub fn decide(&mut self, plans: &[Plan], caller: u64, op: Op, now_us: u64) -> Fields {
        let now = i128::from(now_us);
        let mut opened: Vec<(State, bool)> = plans
            .iter()
            .enumerate()
            .map(|(policy, plan)| self.open(policy, plan, caller, op, now))
            .collect();
        if let Op::Acquire { .. } = op {
            for (policy, (state, is_news)) in opened.iter_mut().enumerate() {
                let State::Permits(permits) = state else {
                    continue;
                };
                *is_news |= permits.state(now);
                // The process knows its permits, whatever the store keeps.
                let kept = self.kept.get_mut(&(policy, caller));
                if let Some(State::Permits(kept)) = kept.map(|kept| &mut kept.state) {
                    kept.shortest_ms = permits.shortest_ms;
                }
            }
        }
        let asks: Vec<Ask> = plans.iter().map(|plan| Ask::new(plan, op)).collect();
        // How many units each policy moves.
        let granted = match op {
            Op::UpTo(most) => {
                let each = opened.iter().zip(plans);
                let each = each.filter(|(_, plan)| !plan.spec.is_penalty());
                let each = each.map(|((state, _), plan)| most_units(plan, state, most, 0, now));
                each.min().unwrap_or(0)
            }
            // Refunds and debits apply to each policy by itself.
            Op::Credit(_) | Op::Debit(_) | Op::Strike(_) | Op::Ban(_) => 1,
            _ => {
                let mut each = opened.iter().zip(plans).zip(&asks);
                u64::from(each.all(|(((state, _), plan), ask)| ask.fits(plan, state, now)))
            }
        };
        let is_banned = |(state, _): &(State, bool)| match state {
            State::Penalty(record) => record.is_banned(now),
            _ => false,
        };
        let is_of_request = matches!(op, Op::Check | Op::CheckN(_) | Op::Peek | Op::UpTo(_));
        let is_banned = is_of_request && opened.iter().any(is_banned);
        let granted = if is_banned { 0 } else { granted };
        let allowed = granted > 0 || op == Op::UpTo(0) && !is_banned;
        let mut lines = Vec::new();
        let asked = plans.iter().enumerate();
        for (policy, plan) in asked.filter(|(_, plan)| op.is_for(plan)) {
            let (before, must_save) = &opened[policy];
            let mut after = before.clone();
            if let State::Penalty(record) = &mut after {
                let is_denial = !allowed && matches!(op, Op::Check | Op::CheckN(_));
                let strikes = match op {
                    Op::Strike(strikes) => strikes,
                    _ => u64::from(is_denial && plan.strikes && !record.is_banned(now)),
                };
                let moved = record.strike(&plan.spec, strikes, now);
                let is_ban = matches!(op, Op::Ban(ban_ms) if record.ban(ban_ms, now));
                let shown = if op == Op::Strike(strikes) { moved } else { 0 };
                lines.push(PolicyFields {
                    moved: shown,
                    uncharged: asks[policy].shown - shown,
                    // A denial may be the strike that starts a ban.
                    ..asks[policy].line(plan, &after, &after, allowed, now)
                });
                if op != Op::Peek && (moved > 0 || is_ban || *must_save) {
                    self.keep(policy, caller, plan, after, true);
                }
                continue;
            }
            let before = &match (before, op) {
                (State::Permits(permits), Op::Acquire { .. }) => {
                    State::Permits(permits.of_the_living(now))
                }
                _ => before.clone(),
            };
            let taken = match op {
                Op::Peek | Op::Credit(_) => 0,
                Op::UpTo(_) => granted,
                Op::Debit(most) => most_units(plan, before, most, asks[policy].beyond, now),
                _ if allowed => asks[policy].units,
                _ => 0,
            };
            let mut level = i128::from(taken) * plan.spec.unit();
            let mut moved = taken;
            match op {
                Op::Credit(units) => {
                    level = give(&plan.spec, &mut after, units, now);
                    moved = (level / plan.spec.unit()) as u64;
                }
                _ if taken > 0 => take(&plan.spec, &mut after, level, op, now),
                _ => {}
            }
            lines.push(PolicyFields {
                moved,
                uncharged: asks[policy].units - moved,
                delay_us: match op {
                    Op::Credit(_) | Op::Peek => 0,
                    _ => delay_us(&plan.spec, before, &after, level, now),
                },
                ..asks[policy].line(plan, before, &after, allowed, now)
            });
            if op != Op::Peek && (level > 0 || *must_save) {
                self.keep(policy, caller, plan, after, level > 0);
            }
        }
        let denied_by = lines.iter().filter(|line| line.denied);
        let moved = lines
            .iter()
            .zip(plans.iter().filter(|plan| op.is_for(plan)));
        let moved = moved.filter(|(line, plan)| line.cost > 0 || !plan.spec.is_penalty());
        let moved = moved.map(|(line, _)| line.moved);
        let waits: Option<Vec<u128>> = denied_by.map(|line| line.retry_us).collect();
        Fields {
            verdict: if allowed {
                Verdict::Allowed
            } else if lines.iter().any(|line| line.impossible) {
                Verdict::Impossible
            } else {
                Verdict::Denied
            },
            now_us,
            retry_us: waits.and_then(|waits| waits.into_iter().max()),
            delay_us: lines.iter().map(|line| line.delay_us).max().unwrap_or(0),
            moved: moved.min().unwrap_or(0),
            uncharged: lines.iter().map(|line| line.uncharged).max().unwrap_or(0),
            lines,
        }
    }

    /// Releases a permit.
    pub fn release(&mut self, plan: &Plan, caller: u64, number: u64, now_us: u64) {
        let (mut state, _) = self.open(0, plan, caller, Op::Peek, now_us.into());
        let State::Permits(permits) = &mut state else {
            panic!("no permits");
        };
        if permits.release(number, now_us.into()) {
            self.keep(0, caller, plan, state, true);
        }
    }

    /// `is_changed`: if not, other numbers may count it for longer.
    fn keep(&mut self, policy: usize, caller: u64, plan: &Plan, state: State, is_changed: bool) {
        let before = self.kept.get(&(policy, caller)).filter(|_| !is_changed);
        let before_us = before.map_or(0, |kept| kept.forgotten_at_us);
        let kept = Kept {
            writer: plan.spec,
            forgotten_at_us: forgotten_at_us(&plan.spec, &state).max(before_us),
            state,
        };
        self.kept.insert((policy, caller), kept);
    }

    /// Returns the caller's state, and whether it must be stored.
    fn open(&self, policy: usize, plan: &Plan, caller: u64, op: Op, now: i128) -> (State, bool) {
        let stored = self.kept.get(&(policy, caller)).map(|kept| &kept.state);
        macro_rules! stored {
            ($kind:ident) => {
                stored.map(|state| match state {
                    State::$kind(state) => state,
                    _ => panic!("state of another algorithm"),
                })
            };
        }
        let spec = &plan.spec;
        match *spec {
            Spec::Bucket { .. } => {
                let (state, must_save) = Bucket::open(spec, stored!(Bucket), now);
                (State::Bucket(state), must_save)
            }
            Spec::Interval { .. } => {
                let (state, must_save) = Interval::open(spec, stored!(Interval), now);
                (State::Interval(state), must_save)
            }
            Spec::Window { .. } => {
                let phase = self.phases_ms.get(&(*spec, caller)).copied();
                let phase = phase.unwrap_or_else(|| windows::phase_ms(spec));
                let (state, must_save) = Window::open(spec, phase, stored!(Window), now);
                (State::Window(state), must_save)
            }
            Spec::Sliding { .. } => {
                let (state, must_save) = Sliding::open(spec, stored!(Sliding), now);
                (State::Sliding(state), must_save)
            }
            Spec::Log { limit, window_ms } => {
                let (state, must_save) = Log::open(limit, window_ms, stored!(Log), now);
                (State::Log(state), must_save)
            }
            Spec::Concurrency { .. } => {
                let (state, is_news) = Permits::open(spec, stored!(Permits), now);
                (State::Permits(state), is_news)
            }
            Spec::Penalty { .. } => {
                let prolongs = matches!(
                    op,
                    Op::Check | Op::CheckN(_) | Op::UpTo(_) | Op::Strike(1..)
                );
                let (state, is_news) = Record::open(spec, stored!(Penalty), prolongs, now);
                (State::Penalty(state), is_news)
            }
        }
    }
}

/// What is asked of one policy.
struct Ask {
    units: u64,
    /// The level that must fit, and how far beyond the depth.
    cost: i128,
    beyond: i128,
    shown: u64,
    /// Nothing is asked for, so there is nothing to deny.
    is_nothing: bool,
}

impl Ask {
    fn new(plan: &Plan, op: Op) -> Self {
        let (units, beyond) = match op {
            Op::Strike(units) | Op::Ban(units) => (units, 0),
            _ if plan.spec.is_penalty() => (0, 0),
            Op::Check | Op::Peek => (plan.cost, 0),
            Op::Acquire { units, .. } => (units.unwrap_or(plan.cost), 0),
            Op::CheckN(units) | Op::UpTo(units) => (units, 0),
            Op::Credit(units) => (units, 0),
            Op::Debit(units) => (units, plan.debt_level()),
        };
        let needed = match op {
            Op::UpTo(units) => units.min(1),
            Op::Credit(_) | Op::Debit(_) | Op::Strike(_) | Op::Ban(_) => 0,
            _ => units,
        };
        Self {
            units,
            cost: i128::from(needed) * plan.spec.unit(),
            beyond,
            shown: units,
            is_nothing: op == Op::UpTo(0) && !plan.spec.is_penalty(),
        }
    }

    fn fits(&self, plan: &Plan, state: &State, at_us: i128) -> bool {
        fits(&plan.spec, state, self.cost, self.beyond, at_us)
    }

    fn line(
        &self,
        plan: &Plan,
        before: &State,
        after: &State,
        allowed: bool,
        now: i128,
    ) -> PolicyFields {
        let spec = &plan.spec;
        let is_above_all = self.cost > spec.depth() + self.beyond;
        let never_refills = matches!(spec, Spec::Interval { limit: 0, .. });
        let denied = !(allowed || self.is_nothing || self.fits(plan, before, now));
        let retry_us = if !denied || is_above_all || never_refills {
            None
        } else {
            let fits_at = first(now, |at_us| self.fits(plan, before, at_us));
            Some((fits_at - now) as u128)
        };
        let level_after = level(spec, after, now);
        let left = match level_after <= spec.slack() {
            true => spec.depth(),
            false => (spec.depth() - level_after).max(0),
        } / spec.unit();
        PolicyFields {
            denied,
            impossible: !allowed && is_above_all,
            limit: spec.capacity(),
            cost: self.shown,
            moved: 0,
            uncharged: 0,
            remaining: u64::try_from(left).expect("a count"),
            reset_us: (first(now, |at_us| level(spec, after, at_us) == 0) - now) as u128,
            retry_us,
            delay_us: 0,
        }
    }
}

fn fits(spec: &Spec, state: &State, cost: i128, beyond: i128, at_us: i128) -> bool {
    let room = spec.depth() + beyond;
    let level = level(spec, state, at_us);
    cost <= room && (level <= spec.slack() || level + cost <= room)
}

/// Returns the most units that fit, up to `most`.
fn most_units(plan: &Plan, state: &State, most: u64, beyond: i128, now: i128) -> u64 {
    let fit = |units: u64| {
        let cost = i128::from(units) * plan.spec.unit();
        units == 0 || fits(&plan.spec, state, cost, beyond, now)
    };
    let (mut fitting, mut too_many) = (0, most.min(1 << 53) + 1);
    while too_many - fitting > 1 {
        let middle = fitting + (too_many - fitting) / 2;
        if fit(middle) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    fitting
}

/// Returns how long an admitted request is held.
fn delay_us(spec: &Spec, before: &State, after: &State, cost: i128, now: i128) -> u128 {
    let Spec::Bucket { kind, .. } = *spec else {
        return 0;
    };
    if cost == 0 {
        return 0;
    }
    let turn_at = if kind == Kind::Queue {
        // Until all requests before it have left.
        let is_free = |at_us| level(spec, before, at_us) == 0;
        if level(spec, before, now) <= spec.slack() {
            now
        } else {
            first(now, is_free)
        }
    } else if fits(spec, before, cost, 0, now) {
        now
    } else {
        // Until the debt is paid back.
        first(now, |at_us| level(spec, after, at_us) <= spec.depth())
    };
    (turn_at - now) as u128
}

/// Returns the first microsecond at which the condition holds; from then on it holds.
fn first(now: i128, is_so: impl Fn(i128) -> bool) -> i128 {
    if is_so(now) {
        return now;
    }
    let mut step = 1;
    while !is_so(now + step) {
        step *= 2;
        assert!(step < 1 << 70, "the condition never holds");
    }
    let (mut not_yet, mut so) = (now + step / 2, now + step);
    while so - not_yet > 1 {
        let middle = not_yet + (so - not_yet) / 2;
        if is_so(middle) {
            so = middle;
        } else {
            not_yet = middle;
        }
    }
    so
}

fn level(spec: &Spec, state: &State, at_us: i128) -> i128 {
    match state {
        State::Penalty(state) => state.level(spec, at_us),
        State::Bucket(state) => state.level(at_us),
        State::Interval(state) => state.level(at_us),
        State::Window(state) => state.level(at_us),
        State::Sliding(state) => state.level(at_us),
        State::Log(state) => state.level(at_us),
        State::Permits(state) => state.level(at_us),
    }
}

fn take(spec: &Spec, state: &mut State, level: i128, op: Op, now: i128) {
    match state {
        State::Bucket(state) => state.take(spec, level, now),
        State::Interval(state) => state.take(level),
        State::Window(state) => state.take(level),
        State::Sliding(state) => state.take(level),
        State::Log(state) => state.take(level, now),
        State::Permits(state) => match op {
            Op::Acquire { number, .. } => state.take(level, number, now),
            _ => panic!("permits are acquired"),
        },
        State::Penalty(_) => panic!("a penalty takes no units"),
    }
}

fn give(spec: &Spec, state: &mut State, units: u64, now: i128) -> i128 {
    let level = i128::from(units) * spec.unit();
    match state {
        State::Bucket(state) => state.give(spec, level, now),
        State::Interval(state) => state.give(level),
        State::Window(state) => state.give(level),
        State::Sliding(state) => state.give(level),
        State::Log(state) => state.give(level),
        State::Permits(_) => panic!("permits are released"),
        State::Penalty(_) => panic!("a penalty has no units"),
    }
}

fn forgotten_at_us(spec: &Spec, state: &State) -> i128 {
    match state {
        State::Bucket(state) => state.forgotten_at_us(spec),
        State::Interval(state) => state.forgotten_at_us(spec),
        State::Window(state) => state.forgotten_at_us(),
        State::Sliding(state) => state.forgotten_at_us(),
        State::Log(state) => state.forgotten_at_us(),
        State::Permits(state) => state.forgotten_at_us(),
        State::Penalty(state) => state.forgotten_at_us(spec),
    }
}
