//! All buckets, in shards with a lock each.

use std::{
    borrow::Cow,
    fmt, mem, slice,
    sync::{Arc, Mutex, MutexGuard},
};

use smallvec::SmallVec;

use super::{
    entry::{BucketId, caller_id},
    shard::Shard,
    sketch::Cells,
};
use crate::{
    Clock, Decision, PolicyDecision,
    charge::{Charge, Check, Operation},
    clock,
    metrics::store::StoreMetrics,
    store::{Answer, BucketWords, Store, decide::Readings},
    util::{hash::SecretHasher, lock::lock},
};

pub(in crate::store) struct Buckets {
    shards: Box<[LockedShard]>,
    hash: SecretHasher,
    clock: Arc<dyn Clock>,
}

/// In cache lines of its own, because two threads are nearly always in different shards.
#[repr(align(64))]
struct LockedShard(Mutex<Shard>);

impl fmt::Debug for Buckets {
    /// Omits the key of the hash, with which a client could make callers share a bucket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets")
            .field("shards", &self.shards.len())
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

const MAX_SHARDS: usize = 64;
/// A shard of fewer buckets would be full long before the others.
const MIN_SHARD_CAPACITY: usize = 64;

impl Buckets {
    pub(in crate::store) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        let shards = (capacity / MIN_SHARD_CAPACITY).clamp(1, MAX_SHARDS);
        let shard = || LockedShard(Mutex::new(Shard::new(capacity.div_ceil(shards))));
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            hash: SecretHasher::default(),
            clock,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Takes from one bucket, which is looked up once.
    pub(super) fn take(&self, charge: &Charge<'_>) -> Decision {
        let id = self.bucket_id(charge);
        // The clock is read before the lock is taken, so that no other check waits for it,
        let mut now_us = clock::read(&*self.clock);
        let mut shard = self.shard(id).lock();
        if now_us < shard.latest_us() {
            // and read again if a later check came first: a bucket's time never goes back.
            now_us = clock::read(&*self.clock);
        }
        shard.begin(now_us);
        let (outcome, fits) = if let Some(entry) = shard.find_mut(id) {
            charge.take(now_us, entry)
        } else if shard.is_full_with(0) {
            drop(shard);
            return self.check_all(&Check::new(Operation::Take, slice::from_ref(charge)));
        } else {
            let mut bucket = BucketWords::default();
            let taken = charge.take(now_us, &mut bucket);
            shard.insert(id, &mut bucket);
            taken
        };
        // The decision is made when other checks no longer wait for the bucket.
        drop(shard);
        let policy = PolicyDecision::from_outcome(charge.policy.clone(), &charge.demand, outcome);
        Decision::new(Operation::Take, Some(policy), fits)
    }

    /// Decides any check: of several policies, of one that meets a full shard, or a refund.
    fn check_all(&self, check: &Check<'_>) -> Decision {
        let mut places = SmallVec::<[Place; INLINE_CHARGES]>::new();
        for charge in check.charges() {
            places.push(self.place(self.bucket_id(charge)));
        }
        let mut shards = self.lock(&mut places);
        let now_us = clock::read(&*self.clock);
        let mut buckets = SmallVec::<[BucketWords; INLINE_CHARGES]>::new();
        for (number, (charge, place)) in check.charges().iter().zip(&mut places).enumerate() {
            let shard = locked_shard(&mut shards, place.lock);
            shard.begin(now_us);
            // The buckets of the charges before it may be new ones of this shard, not inserted yet.
            let is_full = shard.is_full_with(number);
            buckets.push(self.open(check.operation(), charge, place, is_full, now_us, shard));
        }
        let has_own = |place: &Place| matches!(place.storage, Storage::Own);
        let charges = match places.iter().all(has_own) {
            true => Cow::Borrowed(check.charges()),
            false => {
                let charges = check.charges().iter().zip(&places);
                let effective = charges
                    .map(|(charge, place)| effective_charge(charge, check.operation(), place));
                Cow::Owned(effective.collect())
            }
        };
        let check = Check::new(check.operation(), &charges);
        let mut readings = Readings::new();
        let fitting = check.change(now_us, &mut buckets, &mut readings);
        for ((bucket, place), charge) in buckets.iter_mut().zip(places.drain(..)).zip(&*charges) {
            let shard = locked_shard(&mut shards, place.lock);
            match place.storage {
                Storage::Own => shard.put(place.id, bucket),
                Storage::Cells(cells) => {
                    let held = bucket.held.take();
                    let bucket = mem::take(bucket);
                    cells.close(check.operation(), charge, now_us, bucket, shard);
                    if charge.demand.hold.is_some() && check.operation() != Operation::Peek {
                        shard.put_held(place.id, held);
                    }
                }
                Storage::Nowhere => {}
            }
        }
        // The decision is made when other checks no longer wait for the buckets.
        drop(shards);
        check.decision(now_us, fitting, &readings)
    }

    /// Takes out the words of a charge's bucket. If there is no room for a bucket, it takes those
    /// of the cells that new callers share.
    fn open(
        &self,
        operation: Operation,
        charge: &Charge<'_>,
        place: &mut Place,
        is_full: bool,
        now_us: u64,
        shard: &mut Shard,
    ) -> BucketWords {
        if is_full
            && !shard
                .find_mut(place.id)
                .is_some_and(|entry| entry.has_words())
        {
            if let Some(bucket) = self.open_without_room(operation, charge, place, now_us, shard) {
                return bucket;
            }
        }
        shard.take(place.id)
    }

    /// The same for a caller that has no bucket in a full shard. `None`: it gets one.
    fn open_without_room(
        &self,
        operation: Operation,
        charge: &Charge<'_>,
        place: &mut Place,
        now_us: u64,
        shard: &mut Shard,
    ) -> Option<BucketWords> {
        // Permits must be found again; there are at most as many as requests in flight.
        let is_found_again = charge.demand.quota.is_concurrency() || operation == Operation::Ban;
        if is_found_again {
            return None;
        }
        let holds = charge.demand.hold.is_some();
        if operation == Operation::Refund && !holds || charge.demand.quota.penalty().is_some() {
            // Its units, if any, are in cells that others share. And no caller is banned for the
            // strikes of others.
            place.storage = Storage::Nowhere;
            return Some(BucketWords::default());
        }
        let charge = charge.of_newcomers(operation);
        let (cells, mut bucket) =
            Cells::open(&self.hash, operation, &charge, place.id, now_us, shard);
        if holds {
            // Held units must be found again, too.
            bucket.held = shard.take(place.id).held;
        }
        place.storage = Storage::Cells(Box::new(cells));
        Some(bucket)
    }

    fn bucket_id(&self, charge: &Charge<'_>) -> BucketId {
        let kind = charge.demand.quota.letter();
        caller_id(self.hash(charge.policy.hash, kind, charge.key.as_bytes()))
    }

    /// Hashes the key of a policy's caller, under the secret of this store.
    pub(super) fn hash(&self, policy: (u64, u64), kind: u8, key: &[u8]) -> u64 {
        self.hash.hash_64(policy, kind, key)
    }

    fn place(&self, id: BucketId) -> Place {
        Place {
            id,
            shard: self.shard_of(id),
            lock: 0,
            storage: Storage::Own,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "`shard_of` is below the length")]
    fn shard(&self, id: BucketId) -> &LockedShard {
        &self.shards[self.shard_of(id)]
    }

    /// Takes 16 bits of an id as a fraction of all shards.
    pub(super) fn shard_of(&self, id: BucketId) -> usize {
        let fraction = (id >> 32) as usize & 0xffff;
        (fraction * self.shards.len()) >> 16
    }

    /// Locks the shards of all places, each once, always in the same order.
    #[expect(clippy::indexing_slicing, reason = "places have shards of this store")]
    fn lock(&self, places: &mut [Place]) -> LockedShards<'_> {
        let mut locked = LockedShards::new();
        let mut next = 0;
        loop {
            let wanted = places.iter().map(|place| place.shard);
            let Some(number) = wanted.filter(|shard| *shard >= next).min() else {
                return locked;
            };
            for place in places.iter_mut().filter(|place| place.shard == number) {
                place.lock = locked.len();
            }
            locked.push(self.shards[number].lock());
            next = number + 1;
        }
    }
}

impl Store for Buckets {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        Answer::Now(Ok(match (check.operation(), check.charges()) {
            (Operation::Take, [charge]) if charge.demand.hold.is_none() => self.take(charge),
            _ => self.check_all(check),
        }))
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        for charge in charges {
            let id = self.bucket_id(charge);
            self.shard(id).lock().remove(id);
        }
        Answer::Now(Ok(()))
    }

    fn metrics(&self) -> StoreMetrics {
        StoreMetrics {
            memory_buckets: Some(self.len() as u64),
            ..StoreMetrics::new("memory")
        }
    }
}

impl LockedShard {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        lock(&self.0)
    }
}

/// Lists of more charges than these are on the heap.
const INLINE_CHARGES: usize = 4;

type LockedShards<'a> = SmallVec<[MutexGuard<'a, Shard>; INLINE_CHARGES]>;

/// Where a charge's bucket is.
struct Place {
    id: BucketId,
    shard: usize,
    /// The index of its shard among the locked ones.
    lock: usize,
    storage: Storage,
}

/// Where a charge's bucket is stored.
enum Storage {
    /// In a bucket of its own.
    Own,
    /// In cells that other callers share.
    Cells(Box<Cells>),
    Nowhere,
}

/// Returns a charge as its storage takes it: cells take no debts and no refunds, and nothing is asked
/// of a bucket that is nowhere.
fn effective_charge<'a>(charge: &Charge<'a>, operation: Operation, place: &Place) -> Charge<'a> {
    match place.storage {
        Storage::Own => charge.clone(),
        Storage::Cells(_) => charge.of_newcomers(operation),
        Storage::Nowhere => {
            let mut charge = charge.clone();
            charge.demand.to_mut().level = 0;
            charge
        }
    }
}

#[expect(clippy::indexing_slicing, reason = "`lock` sets the index")]
fn locked_shard<'s>(shards: &'s mut LockedShards<'_>, lock: usize) -> &'s mut Shard {
    &mut shards[lock]
}
