//! A check whose buckets lie in several slots.
//!
//! Legs of one slot are a group, decided in one call. What takes, takes group
//! after group; when one refuses, those before it are given back what they gave,
//! and those behind it are only looked at, so that the decision names all that
//! refuse. What does not take goes to all groups at once.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    Cluster, KeyedLeg,
    follow::{Failed, unsplittable},
};
use crate::{
    Decision, PolicyDecision, StoreError,
    charge::{Demand, Operation},
    store::redis::{call::Deadline, question::Question, reply::Found},
};

/// Legs of one slot, each with its place in the check. Never empty.
#[derive(Clone, Debug)]
pub(super) struct Group(SmallVec<[(usize, KeyedLeg); 2]>);

/// A group, and how it was found before.
pub(super) struct Told {
    group: Group,
    found: Found,
}

impl Group {
    /// In the order of the first leg of each.
    pub(super) fn by_slot(legs: Vec<KeyedLeg>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::with_capacity(1);
        for (place, leg) in legs.into_iter().enumerate() {
            let slot = leg.slot;
            match groups.iter_mut().find(|group| group.slot() == slot) {
                Some(group) => group.0.push((place, leg)),
                None => groups.push(Self::of_one((place, leg))),
            }
        }
        groups
    }

    fn of_one(leg: (usize, KeyedLeg)) -> Self {
        Self(SmallVec::from_iter([leg]))
    }

    fn slot(&self) -> u16 {
        self.0.first().map_or(0, |(_, leg)| leg.slot)
    }

    fn key_by_key(self) -> impl DoubleEndedIterator<Item = Self> {
        self.0.into_iter().map(Self::of_one)
    }

    pub(super) fn question(&self, operation: Operation) -> Question {
        Question {
            operation,
            slot: self.slot(),
            legs: self.0.iter().map(|(_, leg)| leg.leg.clone()).collect(),
        }
    }

    fn change(&mut self, mut change: impl FnMut(&mut Demand)) {
        for (_, leg) in &mut self.0 {
            change(&mut leg.leg.demand);
        }
    }

    /// The same, for no more units than others had room for.
    fn for_at_most(mut self, operation: Operation, units: u64) -> Self {
        if operation == Operation::TakeUpTo {
            self.change(|asked| {
                asked.cost = asked.cost.min(units);
                asked.level = asked.quota.level_of(asked.cost);
            });
        }
        self
    }

    /// The same, to see whether it would refuse.
    fn looked_at(mut self, operation: Operation) -> Self {
        self.change(|asked| (asked.level, asked.overdraft) = asked.least(operation));
        self
    }
}

impl Told {
    fn policies(
        &self,
        operation: Operation,
        fitting: u64,
    ) -> impl Iterator<Item = (usize, PolicyDecision)> {
        let legs = self.group.0.iter().zip(&self.found.standings);
        legs.map(move |((place, leg), before)| {
            let policy = leg
                .leg
                .decision(operation, fitting, self.found.now_us, *before);
            (*place, policy)
        })
    }

    /// Whether it granted permits. They come back by their holder's next statement,
    /// which a caller makes whose decision [says so](Decision::is_lost).
    fn has_granted_permits(&self) -> bool {
        let mut legs = self.group.0.iter().map(|(_, leg)| &leg.leg.demand);
        self.found.fitting > 0 && legs.any(|asked| asked.quota.is_concurrency())
    }

    /// What to give back, so that only so many units stay taken.
    fn surplus(&self, operation: Operation, fitting: u64) -> Option<Group> {
        let more = self
            .found
            .fitting
            .checked_sub(fitting)
            .filter(|more| *more > 0)?;
        let mut group = self.group.clone();
        let taken = self.policies(operation, self.found.fitting);
        for ((_, leg), (_, taken)) in group.0.iter_mut().zip(taken) {
            let asked = &mut leg.leg.demand;
            let level = match operation {
                Operation::TakeUpTo => asked.quota.level_of(more),
                _ => asked.level,
            };
            // A bucket that nobody lines up in gives back whatever came after.
            let is_in_line = !taken.delay().is_zero() || asked.quota.paces();
            let since = match asked.quota.reserves() && !is_in_line {
                true => 0,
                false => taken.mark(),
            };
            asked.refund(level, since);
        }
        group
            .0
            .retain(|(_, leg)| !leg.leg.demand.quota.is_concurrency());
        (!group.0.is_empty()).then_some(group)
    }
}

impl Cluster {
    pub(super) async fn decide_in_groups(
        self: Arc<Self>,
        operation: Operation,
        groups: Vec<Group>,
        deadline: Deadline,
        answer: &oneshot::Sender<Result<Decision, StoreError>>,
    ) -> Result<Decision, StoreError> {
        match operation {
            Operation::Take | Operation::TakeUpTo => {
                self.take(operation, groups, deadline, answer).await
            }
            Operation::Peek | Operation::Refund | Operation::Debit | Operation::Renew => {
                let told = self.ask_all(operation, groups, deadline).await?;
                let fitting = told.iter().map(|told| told.found.fitting).min();
                Ok(decision(operation, fitting.unwrap_or(0), &told))
            }
        }
    }

    async fn take(
        self: Arc<Self>,
        operation: Operation,
        mut groups: Vec<Group>,
        deadline: Deadline,
        answer: &oneshot::Sender<Result<Decision, StoreError>>,
    ) -> Result<Decision, StoreError> {
        let mut legs = groups.iter().flat_map(|group| &group.0);
        let wanted = match (operation, legs.next()) {
            (Operation::TakeUpTo, Some((_, leg))) => leg.leg.demand.cost,
            _ => 1,
        };
        let is_impossible = groups.iter().any(|group| {
            let mut asked = group.0.iter().map(|(_, leg)| &leg.leg.demand);
            asked.any(|asked| asked.is_impossible(operation))
        });
        let mut fitting = if is_impossible { 0 } else { wanted };
        let mut told: Vec<Told> = Vec::new();
        groups.reverse();
        while fitting > 0 || (wanted == 0 && !is_impossible) {
            let Some(group) = groups.pop() else { break };
            let asked = group.clone().for_at_most(operation, fitting);
            let found = match answer.is_closed() {
                true => Err(StoreError::not_sent("the caller has left").into()),
                false => self.ask(&asked.question(operation), deadline).await,
            };
            match found {
                Ok(found) => {
                    fitting = fitting.min(found.fitting);
                    told.push(Told { group, found });
                }
                Err(Failed::KeyByKey) if group.0.len() > 1 => {
                    groups.extend(group.key_by_key().rev());
                }
                Err(failed) => {
                    let given = self.give_back(operation, 0, &told).await;
                    let error = unsplittable(failed);
                    return Err(match given {
                        Ok(()) if told.iter().any(Told::has_granted_permits) => {
                            error.after_taking()
                        }
                        Ok(()) => error,
                        // Units are taken, whatever became of the others.
                        Err(_) => StoreError::unavailable(error),
                    });
                }
            }
        }
        // Whatever is left was not asked, because one before it refused.
        groups.reverse();
        let looked_at = groups.into_iter().map(|group| group.looked_at(operation));
        let looks = self.ask_all(Operation::Peek, looked_at.collect(), deadline);
        let (given, looked) = tokio::join!(self.give_back(operation, fitting, &told), looks);
        given.map_err(StoreError::unavailable)?;
        let is_lost = fitting == 0 && told.iter().any(Told::has_granted_permits);
        match looked {
            Ok(looked) => told.extend(looked),
            Err(error) if is_lost => return Err(error.after_taking()),
            Err(error) => return Err(error),
        }
        let decision = decision(operation, fitting, &told);
        Ok(if is_lost { decision.lost() } else { decision })
    }

    /// What was taken beyond these units. It was counted, so it is given back in
    /// time of its own.
    async fn give_back(
        self: &Arc<Self>,
        operation: Operation,
        fitting: u64,
        told: &[Told],
    ) -> Result<(), StoreError> {
        let surplus = told
            .iter()
            .filter_map(|told| told.surplus(operation, fitting));
        let deadline = Deadline::after(self.deadline);
        let given = self.ask_all(Operation::Refund, surplus.collect(), deadline);
        given.await.map(drop)
    }

    /// All at once; if one fails, the others are done nevertheless.
    pub(super) async fn ask_all(
        self: &Arc<Self>,
        operation: Operation,
        groups: Vec<Group>,
        deadline: Deadline,
    ) -> Result<Vec<Told>, StoreError> {
        let mut calls = JoinSet::new();
        for group in groups {
            let cluster = Arc::clone(self);
            calls.spawn(async move { cluster.ask_one(operation, group, deadline).await });
        }
        let mut told = Vec::with_capacity(calls.len());
        let mut failure = None;
        while let Some(joined) = calls.join_next().await {
            match joined {
                Ok(Ok(more)) => told.extend(more),
                Ok(Err(error)) => failure = Some(error),
                Err(error) => failure = Some(StoreError::unavailable(error)),
            }
        }
        failure.map_or(Ok(told), Err)
    }

    async fn ask_one(
        &self,
        operation: Operation,
        group: Group,
        deadline: Deadline,
    ) -> Result<Vec<Told>, StoreError> {
        match self.ask(&group.question(operation), deadline).await {
            Ok(found) => return Ok(vec![Told { group, found }]),
            Err(Failed::KeyByKey) if group.0.len() > 1 => {}
            Err(failed) => return Err(unsplittable(failed)),
        }
        let (mut told, mut failure) = (Vec::new(), None);
        for group in group.key_by_key() {
            match self.ask(&group.question(operation), deadline).await {
                Ok(found) => told.push(Told { group, found }),
                // The others may still get back what is theirs.
                Err(failed) => failure = Some(unsplittable(failed)),
            }
        }
        failure.map_or(Ok(told), Err)
    }
}

/// As if it had been one check.
fn decision(operation: Operation, fitting: u64, told: &[Told]) -> Decision {
    let now_us = told.iter().map(|told| told.found.now_us).max();
    let policies = told
        .iter()
        .flat_map(|told| told.policies(operation, fitting));
    let mut policies: Vec<_> = policies.collect();
    policies.sort_by_key(|(place, _)| *place);
    let policies = policies.into_iter().map(|(_, policy)| policy);
    Decision::new(operation, policies, fitting, now_us.unwrap_or(0))
}
