//! Waiters in a line: each waits for its turn.
//!
//! Turns follow from the units ahead of a waiter. Only the first waiter knows its turn exactly: no
//! units are ahead of it. Each other waiter sleeps until the latest turn that it can have, and is
//! woken when it becomes the first and its turn comes sooner. So a waiter that leaves moves up all
//! waiters behind it, and wakes one at most.
//!
//! Each waiter has a timer of its own. A future that is not polled delays no other beyond the
//! latest turn of that one.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    task::Waker,
};

use tokio::time::Instant;

/// How turns follow each other in a line.
pub(crate) trait Turns: Default {
    /// What a waiter waits for.
    type Waiter;

    /// Returns the latest turn of a waiter. `ahead`: if it is not the first, the most units that
    /// are ahead of it, and the turn of the first one.
    fn turn(&mut self, waiter: &Self::Waiter, ahead: Option<(u64, Instant)>) -> Instant;

    /// Records that the turn of a waiter has come.
    fn take(&mut self, waiter: &Self::Waiter);
}

#[derive(Default)]
pub(crate) struct Line<T: Turns> {
    pub(super) turns: T,
    /// Those whose turn has not come, by their numbers.
    waiters: HashMap<u64, Waiting<T>>,
    /// Their order. Some that have left are still between the first and the last one.
    order: VecDeque<u64>,
    /// How many units they wait for.
    pub(super) wanted: u64,
    /// How many waiters have come.
    number: u64,
    /// Those whose turn has come, and who have not gone on.
    called: BTreeSet<u64>,
    /// To be woken once the line is unlocked.
    pub(super) woken: Vec<Waker>,
}

pub(super) struct Waiting<T: Turns> {
    units: u64,
    waiter: T::Waiter,
    /// When its timer fires, and what wakes it sooner.
    sleeps: Option<(Instant, Waker)>,
}

impl<T: Turns> Line<T> {
    pub(super) fn first(&self) -> Option<&T::Waiter> {
        let first = self.waiters.get(self.order.front()?)?;
        Some(&first.waiter)
    }

    /// Changes what each waiter waits for.
    pub(super) fn each(&mut self, change: impl FnMut(&mut T::Waiter)) {
        let waiters = self.waiters.values_mut();
        waiters.map(|waiting| &mut waiting.waiter).for_each(change);
    }

    /// Returns whether a waiter is in line before this place, in a line where all waiters are in the
    /// order of their tickets.
    pub(super) fn has_earlier(&self, ticket: u64) -> bool {
        self.order.front().is_some_and(|first| *first < ticket)
    }

    pub(super) fn last(&self) -> Option<&T::Waiter> {
        let last = self.waiters.get(self.order.back()?)?;
        Some(&last.waiter)
    }

    /// Adds a new waiter before those behind it, which wait for `behind` units.
    pub(super) fn add(&mut self, mut behind: u64, units: u64, waiter: T::Waiter) -> u64 {
        self.number += 1;
        let mut place = self.order.len();
        for (index, ticket) in self.order.iter().enumerate().rev() {
            let Some(next) = self.waiters.get(ticket) else {
                continue;
            };
            if next.units > behind {
                break;
            }
            behind -= next.units;
            place = index;
        }
        self.insert(place, self.number, units, waiter);
        self.number
    }

    /// Adds a waiter where its ticket has its place, in a line where all waiters are in the order of
    /// their tickets.
    pub(super) fn add_at(&mut self, ticket: u64, units: u64, waiter: T::Waiter) {
        let place = self.order.partition_point(|other| *other < ticket);
        self.insert(place, ticket, units, waiter);
    }

    fn insert(&mut self, place: usize, ticket: u64, units: u64, waiter: T::Waiter) {
        self.wanted = self.wanted.saturating_add(units);
        self.order.insert(place, ticket);
        let waiting = Waiting {
            units,
            waiter,
            sleeps: None,
        };
        self.waiters.insert(ticket, waiting);
    }

    /// Takes out a waiter, if its turn has not come.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Waiting<T>> {
        self.called.remove(&ticket);
        let left = self.waiters.remove(&ticket)?;
        self.wanted = self.wanted.saturating_sub(left.units);
        let Self { waiters, order, .. } = self;
        let has_left = |ticket: &u64| !waiters.contains_key(ticket);
        while order.front().is_some_and(has_left) {
            order.pop_front();
        }
        while order.back().is_some_and(has_left) {
            order.pop_back();
        }
        if order.len() > 2 * waiters.len() {
            order.retain(|ticket| !has_left(ticket));
        }
        Some(left)
    }

    /// Takes out the waiters whose turn has come. Wakes them, and the next one if its turn comes
    /// before its own timer fires.
    pub(super) fn advance(&mut self) {
        let now = Instant::now();
        while let Some(&ticket) = self.order.front() {
            let Some(first) = self.waiters.get_mut(&ticket) else {
                return;
            };
            let turn = self.turns.turn(&first.waiter, None);
            if turn > now {
                let woken = first.sleeps.take_if(|(until, _)| *until > turn);
                self.woken.extend(woken.map(|(_, waker)| waker));
                return;
            }
            self.come(ticket);
        }
    }

    fn come(&mut self, ticket: u64) {
        if let Some(Waiting { waiter, sleeps, .. }) = self.leave(ticket) {
            self.turns.take(&waiter);
            self.called.insert(ticket);
            self.woken.extend(sleeps.map(|(_, waker)| waker));
        }
    }

    /// Returns whether a waiter whose turn has come goes on: at once, or unless others before it have
    /// not gone on.
    pub(super) fn goes_on(&mut self, ticket: u64, at_once: bool) -> bool {
        let goes_on = at_once || self.called.first().is_none_or(|first| *first >= ticket);
        if goes_on {
            self.called.remove(&ticket);
        }
        goes_on
    }

    /// Returns until when a waiter sleeps; `None` if its turn has come. `waker` is woken if the
    /// turn comes sooner.
    pub(super) fn sleep(&mut self, ticket: u64, waker: &Waker) -> Option<Instant> {
        let first = self.order.front().filter(|first| **first != ticket);
        let first = first.and_then(|first| self.waiters.get(first));
        let first_turn = first.map(|first| self.turns.turn(&first.waiter, None));
        let waiting = self.waiters.get_mut(&ticket)?;
        let others = self.wanted.saturating_sub(waiting.units);
        let ahead = first_turn.map(|turn| (others, turn));
        let turn = self.turns.turn(&waiting.waiter, ahead);
        if turn <= Instant::now() {
            waiting.sleeps = None;
            self.come(ticket);
            return None;
        }
        waiting.sleeps = Some((turn, waker.clone()));
        Some(turn)
    }
}
