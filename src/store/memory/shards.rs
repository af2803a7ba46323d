//! All buckets, in parts with a lock each.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

use super::{
    entry::{Entry, Id},
    shard::Shard,
    sketch::Cells,
};
use crate::{
    Clock, Decision,
    charge::{Charge, Check, Operation},
    clock,
    store::{Answer, Slot, keyed::KeyedHash},
};

pub(super) struct Shards {
    shards: Box<[Locked]>,
    hash: KeyedHash,
    clock: Arc<dyn Clock>,
}

/// In cache lines of its own: two threads are nearly always in different shards.
#[repr(align(64))]
struct Locked(Mutex<Shard>);

impl fmt::Debug for Shards {
    /// Without the key of the hash, by which callers could be made to meet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards")
            .field("shards", &self.shards.len())
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// More shards than threads contend for.
const MOST: usize = 64;

impl Shards {
    pub(super) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        let shards = (capacity / MOST).clamp(1, MOST);
        let shard = || Locked(Mutex::new(Shard::new(capacity.div_ceil(shards))));
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            hash: KeyedHash::new(),
            clock,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// The only leg's bucket is there nearly always, and looked up once.
    pub(super) fn check_one(&self, check: &Check<'_>, leg: &Charge<'_>) -> Answer<Decision> {
        let place = self.place(leg);
        let Some(shard) = self.shards.get(place.shard) else {
            return Answer::Now(Ok(check.decide(0, &mut [])));
        };
        // Nobody needs to wait while the clock is read,
        let mut now_us = clock::read(&*self.clock);
        let mut shard = shard.lock();
        if now_us < shard.latest_us() {
            // but whoever was overtaken reads it again: a bucket sees time go forwards.
            now_us = clock::read(&*self.clock);
        }
        shard.tidy(now_us);
        let id = place.bucket;
        let found = shard.find(id);
        if found.is_err() && shard.is_full() {
            drop(shard);
            return Answer::Now(Ok(self.check_all(check)));
        }
        let at = found.unwrap_or_default();
        let bucket = found.ok().and_then(|at| shard.get_mut(id, at));
        let slot = bucket.map(Entry::take).unwrap_or_default();
        let put = move |slot| shard.put(id, at, slot);
        Answer::Now(Ok(check.decide_one(leg, now_us, slot, put)))
    }

    pub(super) fn check_all(&self, check: &Check<'_>) -> Decision {
        let mut places = Places::with_capacity(check.charges().len());
        for leg in check.charges() {
            places.push(self.place(leg));
        }
        let mut shards = self.lock(&mut places);
        let now_us = clock::read(&*self.clock);
        let mut slots: SmallVec<[Slot; FEW]> = SmallVec::with_capacity(places.len());
        for (number, leg) in check.charges().iter().enumerate() {
            let (before, rest) = places.split_at_mut(number);
            let Some(place) = rest.first_mut() else { break };
            let shard = held_by(&mut shards, place.held);
            shard.tidy(now_us);
            // Those before it may be new, and have no place yet.
            let coming = before.iter().filter(|other| other.held == place.held);
            let is_full = shard.is_full_with(coming.count());
            slots.push(self.open(check.operation(), leg, place, is_full, now_us, shard));
        }
        let has_own = |place: &Place| matches!(place.kept, Kept::Own);
        if places.iter().all(has_own) {
            let decision = check.decide(now_us, &mut slots);
            for (slot, place) in slots.into_iter().zip(&places) {
                held_by(&mut shards, place.held).put(place.bucket, place.at, slot);
            }
            return decision;
        }
        let places_of = check.charges().iter().zip(&places);
        let legs = places_of.map(|(leg, place)| asked_of(leg, check.operation(), place));
        let legs: Vec<_> = legs.collect();
        let check = &Check::new(check.operation(), &legs);
        let decision = check.decide(now_us, &mut slots);
        for ((slot, place), leg) in slots.into_iter().zip(places).zip(&legs) {
            let shard = held_by(&mut shards, place.held);
            match place.kept {
                Kept::Own => shard.put(place.bucket, place.at, slot),
                Kept::Shared(cells) => cells.close(check.operation(), leg, now_us, slot, shard),
                Kept::Nowhere => {}
            }
        }
        decision
    }

    pub(super) fn reset(&self, leg: &Charge<'_>) {
        let place = self.place(leg);
        if let Some(shard) = self.shards.get(place.shard) {
            shard.lock().remove(place.bucket);
        }
    }

    /// A leg's words; where there is no room for its bucket, those that newcomers share.
    fn open(
        &self,
        operation: Operation,
        leg: &Charge<'_>,
        place: &mut Place,
        is_full: bool,
        now_us: u64,
        shard: &mut Shard,
    ) -> Slot {
        let found = shard.find(place.bucket);
        // Permits must be found again; there are no more than requests in flight.
        if is_full && found.is_err() && !leg.demand.quota.is_concurrency() {
            if operation == Operation::GiveBack {
                // What it took, if anything, it shares with others.
                place.kept = Kept::Nowhere;
                return Slot::default();
            }
            let leg = leg.of_newcomers(operation);
            let (cells, slot) = self.open_cells(operation, &leg, place.bucket, now_us, shard);
            place.kept = Kept::Shared(Box::new(cells));
            return slot;
        }
        place.at = found.unwrap_or_default();
        let bucket = found.ok().and_then(|at| shard.get_mut(place.bucket, at));
        bucket.map(Entry::take).unwrap_or_default()
    }

    #[inline]
    fn place(&self, leg: &Charge<'_>) -> Place {
        let kind = leg.demand.quota.letter();
        let bucket = self.hash(leg.policy.hash, kind, leg.key.as_bytes());
        Place {
            bucket,
            shard: self.shard_of(bucket),
            held: 0,
            at: 0,
            kept: Kept::Own,
        }
    }

    /// By one half of the id, as a fraction of all shards. The order within one
    /// goes by the other half.
    #[inline]
    pub(super) fn shard_of(&self, id: Id) -> usize {
        let fraction = id as u64 >> 32;
        ((fraction * self.shards.len() as u64) >> 32) as usize
    }

    /// The bucket of a policy and a caller.
    #[inline]
    pub(super) fn hash(&self, policy: (u64, u64), kind: u8, key: &[u8]) -> Id {
        self.hash.of(policy, kind, key).as_u128() & !1
    }

    /// Locks the shards of all places, each once, always in the same order.
    fn lock(&self, places: &mut [Place]) -> Held<'_> {
        let mut held = Held::new();
        let mut next = 0;
        loop {
            let wanted = places.iter().map(|place| place.shard);
            let Some(number) = wanted.filter(|shard| *shard >= next).min() else {
                return held;
            };
            for place in places.iter_mut().filter(|place| place.shard == number) {
                place.held = held.len();
            }
            held.extend(self.shards.get(number).map(Locked::lock));
            next = number + 1;
        }
    }
}

impl Locked {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Shard> {
        // Nothing panics while it holds a shard; if something did, the bucket that it
        // had in hand would read as new, and all others are whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More legs than that are listed elsewhere than on the stack.
const FEW: usize = 4;

type Held<'a> = SmallVec<[MutexGuard<'a, Shard>; FEW]>;

type Places = SmallVec<[Place; FEW]>;

/// Where a leg's bucket is.
struct Place {
    bucket: Id,
    shard: usize,
    /// Which of the locked shards that is.
    held: usize,
    /// Where it stood there.
    at: usize,
    kept: Kept,
}

/// Where what becomes of a leg's bucket is stored.
enum Kept {
    /// In a bucket of its own.
    Own,
    /// In cells that other callers share.
    Shared(Box<Cells>),
    Nowhere,
}

/// What is asked of a leg: nothing where it has no bucket to refund to.
fn asked_of<'a>(leg: &Charge<'a>, operation: Operation, place: &Place) -> Charge<'a> {
    match place.kept {
        Kept::Own => leg.clone(),
        Kept::Shared(_) => leg.of_newcomers(operation),
        Kept::Nowhere => {
            let mut leg = leg.clone();
            leg.demand.to_mut().level = 0;
            leg
        }
    }
}

#[allow(clippy::indexing_slicing)] // `lock` made both the list and the index into it.
fn held_by<'s>(shards: &'s mut Held<'_>, held: usize) -> &'s mut Shard {
    &mut shards[held]
}
