//! Leases: units that are taken in advance, so that a hot key is decided without a round
//! trip to the server.
//!
//! If a caller is checked often, a batch of units is taken from its bucket in the background,
//! and its checks are decided from that batch while it lasts. The size of a batch depends on how
//! much the caller used just before, and on how much its bucket has left. Near the limit there
//! is no lease, and each check goes to the server. Units that are not used soon are refunded.
//! Only the server denies.
//!
//! The cost: leased units are used a little later than they were taken. So in any span of time,
//! a key may be admitted, in addition to what its bucket grants, what all processes held when
//! the span began. Each process holds at most an eighth of what the bucket had left, and no more
//! than it used in a tenth of a second.

mod entry;
mod reset;
mod table;
#[cfg(test)]
mod tests;

use std::{slice, time::Duration};

use tokio::time::sleep;

use self::{entry::RoundTrip, table::Id};
pub(crate) use self::{reset::reset, table::Leases};
use super::Answer;
use crate::charge::{Charge, Check, Operation};
use crate::{Decision, store::tasks::Tasks};

/// A store that can lease units.
pub(crate) trait Lender: Clone + Send + Sync + 'static {
    fn leases(&self) -> &Leases;

    /// Asks the server.
    fn ask(&self, check: &Check<'_>) -> Answer<Decision>;

    fn tasks(&self) -> &Tasks;

    /// How long a round trip may take.
    fn deadline(&self) -> Duration;
}

/// Decides from leased units if there are enough, or asks the server.
#[inline]
pub(crate) fn check(lender: &impl Lender, check: &Check<'_>) -> Answer<Decision> {
    match check.charges() {
        [charge] if charge.leases && check.operation() == Operation::Take => {
            check_leased(lender, check, charge)
        }
        _ => lender.ask(check),
    }
}

fn check_leased(lender: &impl Lender, check: &Check<'_>, charge: &Charge<'_>) -> Answer<Decision> {
    let asked = &charge.demand;
    // A check with an overdraft or a cost of 0 needs the present state of the bucket.
    if asked.cost == 0 || asked.overdraft != 0 || !asked.quota.leases() {
        return lender.ask(check);
    }
    let leases = lender.leases();
    let lookup = leases.look_up(charge);
    if let Some(trip) = lookup.trip {
        send(lender, lookup.id, *trip);
    }
    if let Some(grant) = lookup.grant {
        return Answer::Now(Ok(grant.decision(charge)));
    }
    if lookup.is_new && leases.begins_sweeping() {
        leases.runtime().spawn(sweep(lender.clone()));
    }
    let (id, cost) = (lookup.id, asked.cost);
    match lender.ask(check) {
        Answer::Now(answer) => {
            leases.record_answer(id, cost, &answer);
            Answer::Now(answer)
        }
        Answer::Later(answer) => {
            let lender = lender.clone();
            Answer::Later(Box::pin(async move {
                let answer = answer.await;
                lender.leases().record_answer(id, cost, &answer);
                answer
            }))
        }
    }
}

/// Refunds all leased units. The store leases none from now on.
pub(crate) async fn close(lender: &impl Lender) {
    let leases = lender.leases();
    for (id, trip) in leases.close() {
        send(lender, id, trip);
    }
    leases.wait_for_round_trips(|| leases.any_in_flight()).await;
}

#[cold]
fn send<L: Lender>(lender: &L, id: Id, trip: RoundTrip) {
    let trips = make_round_trips(lender.clone(), id, trip);
    lender.tasks().spawn(lender.leases().runtime(), trips);
}

/// Makes round trips, and sends each once. If a reply is lost, its units stay taken and are not
/// used.
async fn make_round_trips<L: Lender>(lender: L, id: Id, trip: RoundTrip) {
    let mut next = Some(trip);
    while let Some(trip) = next {
        let charges = slice::from_ref(&trip.charge);
        let answer = lender.ask(&Check::new(trip.operation, charges));
        let answer = answer.wait().await;
        next = lender.leases().end_round_trip(id, trip, &answer);
    }
}

const SWEEP_EVERY: Duration = Duration::from_millis(50);

/// Sweeps as long as any caller has an entry.
async fn sweep<L: Lender>(lender: L) {
    while !lender.leases().ends_sweeping() {
        sleep(SWEEP_EVERY).await;
        for (id, trip) in lender.leases().sweep() {
            send(&lender, id, trip);
        }
    }
}
