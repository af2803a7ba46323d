//! Checks that are decided on in one call.

use std::pin::pin;

use smallvec::SmallVec;
use tokio::time::timeout;

use super::{
    call::{Deadline, Manner},
    node::Node,
    question::{Question, Turns},
    reply::Parts,
    waiting::Queued,
};
use crate::StoreError;

/// Of one slot. Whoever is in it is told, whatever becomes of it.
pub(super) struct Batch(Vec<Entry>);

/// Equal ones, which the call asks for together. Never empty.
type Entry = SmallVec<[Queued; 1]>;

impl Batch {
    /// Checks that ask the same of the same buckets are asked for together, in
    /// the place of the first, unless one between them asks something else of
    /// these buckets. So what one caller asks is decided in the order in which
    /// it came; only what callers share may see them in another.
    pub(super) fn of(gathered: Vec<Queued>) -> Self {
        let mut entries = Vec::<Entry>::with_capacity(gathered.len());
        let mut latest = Latest::of_most(gathered.len());
        for queued in gathered {
            let place = latest.place(&queued.waiting.question, &entries);
            let entry = place.checked_sub(1).and_then(|at| entries.get_mut(at));
            match entry {
                Some(entry) if repeats(entry, &queued) => entry.push(queued),
                _ => {
                    entries.push(Entry::from([queued]));
                    *place = entries.len();
                }
            }
        }
        Self(entries)
    }

    pub(super) async fn decide(self, node: &Node) {
        let turns: SmallVec<[Turns<'_>; 1]> = self.0.iter().filter_map(turns).collect();
        if self.members().any(Queued::is_refund) {
            // Each of its callers watches the time itself.
            let twice = node.timeout().saturating_mul(2);
            let call = node.call(&turns, Manner::Plain, Deadline::after(twice));
            return self.tell(call.await);
        }
        let last = self.deadlines().reduce(Deadline::later);
        let last = last.unwrap_or_else(Deadline::now);
        let mut call = pin!(node.call(&turns, Manner::Plain, last));
        let sent = Deadline::now();
        let mut told = None;
        let reply = loop {
            let Some(next) = self.next_late(told, last) else {
                break call.await;
            };
            if let Ok(reply) = timeout(next.left(), call.as_mut()).await {
                break reply;
            }
            self.tell_late(node, next);
            told = Some(next);
        };
        let server_us = reply.as_ref().ok().and_then(server_us);
        if let Some(ended) = node.ended(sent, last, reply.as_ref().err(), server_us) {
            node.record(&mut node.dispatch.state(), ended);
        }
        self.tell(reply);
    }

    fn members(&self) -> impl Iterator<Item = &Queued> {
        self.0.iter().flatten()
    }

    fn deadlines(&self) -> impl Iterator<Item = Deadline> {
        self.members().map(|queued| queued.waiting.deadline)
    }

    /// The next deadline that the call's own does not keep.
    fn next_late(&self, told: Option<Deadline>, last: Deadline) -> Option<Deadline> {
        let is_told = |deadline: Deadline| told.is_some_and(|told| !told.is_before(deadline));
        let early = self.deadlines().filter(|deadline| deadline.is_before(last));
        early
            .filter(|deadline| !is_told(*deadline))
            .reduce(Deadline::earlier)
    }

    fn tell_late(&self, node: &Node, by: Deadline) {
        for queued in self.members() {
            let deadline = queued.waiting.deadline;
            if !by.is_before(deadline) {
                queued.waiting.tell(Err(node.late(deadline)));
            }
        }
    }

    /// A caller who left meanwhile was charged, as any whose answer is lost.
    fn tell(&self, reply: Result<Parts, StoreError>) {
        let parts = match reply {
            Ok(parts) => parts,
            Err(error) => {
                for queued in self.members() {
                    queued.waiting.tell(Err(error.clone()));
                }
                return;
            }
        };
        let mut parts = parts.into_iter();
        for entry in &self.0 {
            let mut members = entry.iter();
            while let Some(first) = members.as_slice().first() {
                let Some(part) = parts.next() else { return };
                let found = part.one_by_one(&first.waiting.question);
                for (found, queued) in found.zip(members.by_ref()) {
                    queued.waiting.tell(found);
                }
            }
        }
    }
}

/// The server's clock, as any of its answers tells it.
fn server_us(parts: &Parts) -> Option<u64> {
    let mut found = parts.iter().filter_map(|part| part.found.as_ref().ok());
    found.next().map(|found| found.now_us)
}

fn turns(entry: &Entry) -> Option<Turns<'_>> {
    let first = entry.first()?;
    Some(Turns {
        question: &first.waiting.question,
        times: entry.len() as u64,
    })
}

fn repeats(entry: &Entry, queued: &Queued) -> bool {
    let question = &queued.waiting.question;
    let asked = turns(entry).map(|asked| asked.question);
    asked.is_some_and(|asked| question.repeats(asked))
}

/// Which entry is the last of which buckets, counted from 1: a table with open
/// addresses, half of them 0.
struct Latest {
    places: Vec<usize>,
    none: usize,
}

impl Latest {
    fn of_most(entries: usize) -> Self {
        Self {
            places: vec![0; (2 * entries).next_power_of_two()],
            none: 0,
        }
    }

    /// Where the number of the last entry of these buckets stands, or is to stand.
    fn place(&mut self, question: &Question, entries: &[Entry]) -> &mut usize {
        let is_of_these = |entry: usize| {
            let asked = entry.checked_sub(1).and_then(|at| turns(entries.get(at)?));
            asked.is_none_or(|asked| question.is_of_same_buckets(asked.question))
        };
        let mask = self.places.len() - 1;
        let mut at = question.hash() as usize & mask;
        while self
            .places
            .get(at)
            .is_some_and(|entry| !is_of_these(*entry))
        {
            at = (at + 1) & mask;
        }
        // It is never behind the end.
        self.places.get_mut(at).unwrap_or(&mut self.none)
    }
}
