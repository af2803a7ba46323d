//! A check whose buckets are in several slots.
//!
//! The charges of one slot are a group, decided in one call. A check that takes, takes group
//! after group. When a group denies, the groups before it are refunded, and the groups
//! behind it are only peeked at, so that the decision names all policies that deny. All
//! other checks go to all groups at once.

use std::{mem, sync::Arc};

use smallvec::SmallVec;
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

use super::{Cluster, redirect::unsplittable};
use crate::{
    Decision, PolicyDecision, StoreError,
    charge::{Charge, Demand, Operation},
    store::{
        StoreFuture,
        redis::{
            reply::{CheckResult, policy_decisions},
            request::ScriptRequest,
        },
    },
};

/// The charges of one slot, and their places in the check. Never empty.
#[derive(Clone, Debug)]
pub(super) struct SlotGroup {
    pub(super) request: ScriptRequest,
    places: SmallVec<[usize; 2]>,
}

/// A group, and the state of its buckets before the check.
pub(super) struct GroupResult {
    group: SlotGroup,
    found: CheckResult,
}

impl SlotGroup {
    /// Splits a check, in the order of the first charge of each slot.
    pub(super) fn split(request: ScriptRequest, cluster: &Cluster) -> Vec<Self> {
        let operation = request.operation;
        let mut groups: Vec<Self> = Vec::with_capacity(1);
        for (place, charge) in request.charges.into_iter().enumerate() {
            let slot = cluster.slot(&charge);
            match groups.iter_mut().find(|group| group.request.slot == slot) {
                Some(group) => {
                    group.places.push(place);
                    group.request.charges.push(charge);
                }
                None => groups.push(Self::of_one(operation, slot, place, charge)),
            }
        }
        groups
    }

    fn of_one(operation: Operation, slot: u16, place: usize, charge: Charge<'static>) -> Self {
        Self {
            request: ScriptRequest {
                operation,
                slot,
                charges: SmallVec::from_iter([charge]),
                shadows: Vec::new(),
            },
            places: SmallVec::from_iter([place]),
        }
    }

    /// Splits it further, because its slot moves.
    fn key_by_key(self) -> impl DoubleEndedIterator<Item = Self> {
        let ScriptRequest {
            operation,
            slot,
            charges,
            ..
        } = self.request;
        let charges = self.places.into_iter().zip(charges);
        charges.map(move |(place, charge)| Self::of_one(operation, slot, place, charge))
    }

    /// Whether its keys can be asked about one by one.
    fn is_divisible(&self) -> bool {
        self.request.charges.len() > 1
    }

    fn demands(&self) -> impl Iterator<Item = &Demand> {
        let charges = self.request.charges.iter();
        charges.map(|charge| &*charge.demand)
    }

    fn demands_mut(&mut self) -> impl Iterator<Item = &mut Demand> {
        let charges = self.request.charges.iter_mut();
        charges.map(|charge| charge.demand.to_mut())
    }

    /// Returns the same check, for at most the units that others had room for.
    fn for_at_most(mut self, units: u64) -> Self {
        if self.request.operation == Operation::TakeUpTo {
            for demand in self.demands_mut() {
                demand.cost = demand.cost.min(units);
                demand.level = demand.quota.level_of(demand.cost);
            }
        }
        self
    }

    /// Returns the strikes that follow from a denial in another slot. `was_asked`: whether strikes
    /// that the process counted on its own were sent.
    fn strikes(&self, was_asked: bool) -> Option<Self> {
        let mut group = self.clone();
        let charges = mem::take(&mut group.request.charges);
        let charges = mem::take(&mut group.places).into_iter().zip(charges);
        let struck = charges.filter(|(_, charge)| {
            let demand = &charge.demand;
            demand.quota.penalty().is_some() && demand.strikes.is_some()
        });
        (group.places, group.request.charges) = struck.unzip();
        for demand in group.demands_mut() {
            let counted = demand.strikes.take().filter(|_| !was_asked);
            *demand = Demand::new(demand.quota.clone(), 1 + counted.unwrap_or(0));
        }
        let has_any =
            group.request.operation == Operation::Take && !group.request.charges.is_empty();
        group.request.operation = Operation::Debit;
        has_any.then_some(group)
    }

    /// Returns a check that only tells whether this one would be denied.
    fn peeked(mut self) -> Self {
        let operation = self.request.operation;
        for demand in self.demands_mut() {
            (demand.level, demand.overdraft) = demand.least(operation);
        }
        self.request.operation = Operation::Peek;
        self
    }
}

impl GroupResult {
    /// Returns the decisions of its policies, each with the place of its bucket in the check.
    fn policies(
        &self,
        operation: Operation,
        fitting: u64,
    ) -> impl Iterator<Item = (usize, PolicyDecision)> {
        let charges = &self.group.request.charges;
        let policies = policy_decisions(charges, &self.found, operation, fitting);
        self.group.places.iter().copied().zip(policies)
    }

    /// Whether the strikes of a denied check are sent in a call of their own.
    fn is_struck_apart(&self) -> bool {
        self.found.fitting > 0 || self.group.request.operation == Operation::Peek
    }

    /// Whether it granted permits. They return with their holder's next statement, which a
    /// caller makes whose decision [is lost](Decision::is_lost).
    fn has_granted_permits(&self) -> bool {
        let mut demands = self.group.demands();
        self.found.fitting > 0 && demands.any(|demand| demand.quota.is_concurrency())
    }

    /// Returns the refund after which only `fitting` stays taken.
    fn surplus(&self, fitting: u64) -> Option<SlotGroup> {
        let more = self.found.fitting.checked_sub(fitting);
        let more = more.filter(|more| *more > 0)?;
        let mut group = self.group.clone();
        let operation = group.request.operation;
        group.request.operation = Operation::Refund;
        let mut policies = self.policies(operation, self.found.fitting);
        let charges = group.request.charges.iter_mut();
        for charge in charges {
            let Some((_, taken)) = policies.next() else {
                break;
            };
            let demand = charge.demand.to_mut();
            let level = match operation {
                Operation::TakeUpTo => demand.quota.level_of(more),
                _ => demand.level,
            };
            // Without a queue, a bucket is refunded whatever came since.
            let is_in_line = !taken.delay().is_zero() || demand.quota.paces();
            let taken_at = match demand.quota.reserves() && !is_in_line {
                true => 0,
                false => taken.mark(),
            };
            taken.refund(demand);
            demand.refund(level, taken_at);
        }
        let charges = &mut group.request.charges;
        charges.retain(|charge| {
            let quota = &charge.demand.quota;
            !quota.is_concurrency() && quota.penalty().is_none()
        });
        (!charges.is_empty()).then_some(group)
    }
}

impl Cluster {
    pub(super) async fn decide_in_groups(
        self: Arc<Self>,
        operation: Operation,
        groups: Vec<SlotGroup>,
        deadline: Instant,
        answer: &oneshot::Sender<Result<Decision, StoreError>>,
    ) -> Result<Decision, StoreError> {
        if matches!(operation, Operation::Take | Operation::TakeUpTo) {
            return self.take(operation, groups, deadline, answer).await;
        }
        let results = self.send_all(groups, deadline).await?;
        let fitting = results.iter().map(|result| result.found.fitting).min();
        Ok(decision(operation, fitting.unwrap_or(0), &results, &[]))
    }

    async fn take(
        self: Arc<Self>,
        operation: Operation,
        mut groups: Vec<SlotGroup>,
        deadline: Instant,
        answer: &oneshot::Sender<Result<Decision, StoreError>>,
    ) -> Result<Decision, StoreError> {
        let demands = || groups.iter().flat_map(SlotGroup::demands);
        let wanted = match (operation, demands().find(|demand| !demand.grants_nothing())) {
            (Operation::TakeUpTo, Some(demand)) => demand.cost,
            _ => 1,
        };
        let is_impossible = demands().any(|demand| demand.is_impossible(operation));
        let mut fitting = if is_impossible { 0 } else { wanted };
        let mut results: Vec<GroupResult> = Vec::new();
        groups.reverse();
        while fitting > 0 || (wanted == 0 && !is_impossible) {
            let Some(group) = groups.pop() else { break };
            let limited = group.clone().for_at_most(fitting);
            let found = match answer.is_closed() {
                true => Err(StoreError::not_sent("the caller has left")),
                false => self.send(&limited.request, deadline).await,
            };
            match found {
                Ok(found) => {
                    fitting = fitting.min(found.fitting);
                    results.push(GroupResult { group, found });
                }
                Err(error) if error.is_redirected() && group.is_divisible() => {
                    groups.extend(group.key_by_key().rev());
                }
                Err(error) => {
                    let refunded = self.refund(0, &results).await;
                    let error = unsplittable(error);
                    return Err(match refunded {
                        Ok(()) if results.iter().any(GroupResult::has_granted_permits) => {
                            error.after_taking()
                        }
                        Ok(()) => error,
                        // Units are taken, whatever the outcome of the others.
                        Err(_) => StoreError::unavailable(error),
                    });
                }
            }
        }
        // The groups that are left were not asked, because one before them denied.
        groups.reverse();
        let strikes: Vec<SlotGroup> = match fitting {
            0 => {
                let admitting = results.iter().filter(|result| result.found.fitting > 0);
                let asked = admitting.filter_map(|result| result.group.strikes(true));
                let unasked = groups.iter().filter_map(|group| group.strikes(false));
                asked.chain(unasked).collect()
            }
            _ => Vec::new(),
        };
        let peeks = groups.into_iter().map(SlotGroup::peeked).collect();
        let (refunded, peeked) = tokio::join!(
            self.refund(fitting, &results),
            self.send_all(peeks, deadline)
        );
        refunded.map_err(StoreError::unavailable)?;
        let is_lost = fitting == 0 && results.iter().any(GroupResult::has_granted_permits);
        match peeked {
            Ok(peeked) => results.extend(peeked),
            Err(error) if is_lost => return Err(error.after_taking()),
            Err(error) => return Err(error),
        }
        // If one is not counted, the request is denied all the same.
        let (strikes, _) = self.send_each(strikes, deadline).await;
        let decision = decision(operation, fitting, &results, &strikes);
        Ok(if is_lost { decision.lost() } else { decision })
    }

    /// Refunds what was taken beyond `fitting`. It was charged, so its refund has a deadline of
    /// its own.
    async fn refund(
        self: &Arc<Self>,
        fitting: u64,
        results: &[GroupResult],
    ) -> Result<(), StoreError> {
        let surplus = results.iter().filter_map(|result| result.surplus(fitting));
        let deadline = Instant::now() + self.shared.timeout;
        let refunded = self.send_all(surplus.collect(), deadline);
        refunded.await.map(drop)
    }

    /// Sends all groups at once. If one fails, the others are decided nevertheless.
    pub(super) async fn send_all(
        self: &Arc<Self>,
        groups: Vec<SlotGroup>,
        deadline: Instant,
    ) -> Result<Vec<GroupResult>, StoreError> {
        let (results, failure) = self.send_each(groups, deadline).await;
        failure.map_or(Ok(results), Err)
    }

    /// Sends all groups at once. Returns what was decided, and one of the errors.
    async fn send_each(
        self: &Arc<Self>,
        groups: Vec<SlotGroup>,
        deadline: Instant,
    ) -> (Vec<GroupResult>, Option<StoreError>) {
        let mut calls = JoinSet::new();
        for group in groups {
            calls.spawn(Arc::clone(self).send_group(group, deadline));
        }
        let (mut results, mut failure) = (Vec::with_capacity(calls.len()), None);
        while let Some(joined) = calls.join_next().await {
            match joined {
                Ok(Ok(more)) => results.extend(more),
                Ok(Err(error)) => failure = Some(error),
                Err(error) => failure = Some(StoreError::unavailable(error)),
            }
        }
        (results, failure)
    }

    fn send_group(
        self: Arc<Self>,
        group: SlotGroup,
        deadline: Instant,
    ) -> StoreFuture<Vec<GroupResult>> {
        Box::pin(async move {
            match self.send(&group.request, deadline).await {
                Ok(found) => Ok(vec![GroupResult { group, found }]),
                Err(error) if error.is_redirected() && group.is_divisible() => {
                    let keys = group.key_by_key().collect();
                    self.send_all(keys, deadline).await
                }
                Err(error) => Err(unsplittable(error)),
            }
        })
    }
}

/// Returns the decision, as if all groups were one check. `strikes`: the outcome of the strikes
/// that followed from its denial. Only these show whether they started a ban.
fn decision(
    operation: Operation,
    fitting: u64,
    results: &[GroupResult],
    strikes: &[GroupResult],
) -> Decision {
    let struck = strikes.iter();
    let struck: Vec<_> = struck
        .flat_map(|result| result.policies(Operation::Debit, 1))
        .collect();
    let struck_at = |place: usize| struck.iter().find(|(at, _)| *at == place);
    let policies = results.iter().flat_map(|result| {
        let is_struck_apart = fitting == 0 && result.is_struck_apart();
        let policies = result.policies(operation, fitting);
        policies.map(move |(place, mut policy)| {
            if is_struck_apart {
                policy.struck_apart(struck_at(place).map(|(_, policy)| policy));
            }
            (place, policy)
        })
    });
    let mut policies: Vec<_> = policies.collect();
    policies.sort_by_key(|(place, _)| *place);
    let policies = policies.into_iter().map(|(_, policy)| policy);
    Decision::new(operation, policies, fitting)
}
