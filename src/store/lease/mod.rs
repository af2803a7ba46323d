//! Units that are paid for in advance, so that a key that is asked for often is
//! decided upon without a trip to the server.
//!
//! A caller who asks often has a portion of its units taken from its bucket in
//! the background, and its checks are decided from that while it lasts. A
//! portion is sized by what the caller used just before, and by what its bucket
//! has left: near the limit there is none, and each check goes to the server.
//! Whatever is not used soon is given back. Only the server refuses.
//!
//! What it may admit too much: units are used a little later than they were
//! paid for. So within any time a key may be admitted, beyond what its bucket
//! grants, what all processes held at its beginning; and each holds at most an
//! eighth of what the bucket had left, and no more than it used in a tenth of a
//! second.

mod entry;
mod reset;
mod table;
#[cfg(test)]
mod tests;

use std::{slice, time::Duration};

use tokio::time::sleep;

use self::{entry::Trip, table::Id};
pub(crate) use self::{reset::reset, table::Leases};
use super::Answer;
use crate::charge::{Charge, Check, Operation};
use crate::{Decision, store::tasks::Tasks};

/// A store that leases.
pub(crate) trait Lender: Clone + Send + Sync + 'static {
    fn leases(&self) -> &Leases;

    /// Asks the server.
    fn ask(&self, check: &Check<'_>) -> Answer<Decision>;

    fn tasks(&self) -> &Tasks;

    /// How long a trip may take.
    fn deadline(&self) -> Duration;
}

/// Decides from what is held, where there is enough of it, or asks the server.
#[inline]
pub(crate) fn check(lender: &impl Lender, check: &Check<'_>) -> Answer<Decision> {
    match check.charges() {
        [leg] if leg.leases && check.operation() == Operation::Take => {
            check_leased(lender, check, leg)
        }
        _ => lender.ask(check),
    }
}

fn check_leased(lender: &impl Lender, check: &Check<'_>, leg: &Charge<'_>) -> Answer<Decision> {
    let asked = &leg.demand;
    // Who asks for a debt, or for nothing, wants to know how the bucket stands.
    if asked.cost == 0 || asked.overdraft != 0 || !asked.quota.leases() {
        return lender.ask(check);
    }
    let leases = lender.leases();
    let seen = leases.ask(leg);
    if let Some(trip) = seen.trip {
        send(lender, seen.id, *trip);
    }
    if let Some(grant) = seen.grant {
        return Answer::Now(Ok(grant.decision(leg)));
    }
    if seen.is_new && leases.begins_sweeping() {
        leases.runtime().spawn(sweep(lender.clone()));
    }
    let (id, cost) = (seen.id, asked.cost);
    match lender.ask(check) {
        Answer::Now(answer) => {
            leases.told(id, cost, &answer);
            Answer::Now(answer)
        }
        Answer::Later(answer) => {
            let lender = lender.clone();
            Answer::Later(Box::pin(async move {
                let answer = answer.await;
                lender.leases().told(id, cost, &answer);
                answer
            }))
        }
    }
}

/// Gives back all that is held, and holds nothing from now on.
pub(crate) async fn close(lender: &impl Lender) {
    let leases = lender.leases();
    for (id, trip) in leases.close() {
        send(lender, id, trip);
    }
    leases.until_home(|| leases.are_away()).await;
}

#[cold]
fn send<L: Lender>(lender: &L, id: Id, trip: Trip) {
    let travelling = travel(lender.clone(), id, trip);
    lender.tasks().spawn(lender.leases().runtime(), travelling);
}

/// Each trip is made once: what is lost on the way stays taken, and is not used.
async fn travel<L: Lender>(lender: L, id: Id, trip: Trip) {
    let mut next = Some(trip);
    while let Some(trip) = next {
        let legs = slice::from_ref(&trip.leg);
        let answer = lender.ask(&Check::new(trip.operation, legs));
        let answer = answer.wait().await;
        next = lender.leases().arrived(id, trip, &answer);
    }
}

const SWEEP_EVERY: Duration = Duration::from_millis(50);

/// As long as anybody asks, or anything is held.
async fn sweep<L: Lender>(lender: L) {
    while !lender.leases().ends_sweeping() {
        sleep(SWEEP_EVERY).await;
        for (id, trip) in lender.leases().sweep() {
            send(&lender, id, trip);
        }
    }
}
