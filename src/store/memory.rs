//! Buckets in this process.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use siphasher::sip128::SipHasher13;
use smallvec::SmallVec;

use super::{Answer, Check, Leg, Slot, Store};
use crate::{Clock, Decision, SystemClock, clock, quota::rules::State};

/// Keeps buckets in this process: the default store. No server, no task.
///
/// Each process counts for itself, so a fleet of n processes admits n times
/// the quota. Share a [`RedisStore`](crate::RedisStore) where that is too much.
///
/// **Bounded.** At most [`capacity`](MemoryStoreBuilder::capacity) buckets,
/// 1,000,000 by default, in up to 64 parts of equal size. A bucket from which
/// nothing is taken any more means the same as none, and is forgotten as
/// requests go by. Nothing else is ever forgotten: where a caller's part is
/// full of buckets in use, callers who have none share one bucket per policy
/// and part, until there is room.
///
/// A bucket is some words, a million of them 120 MB, but for a [`SlidingLog`](crate::SlidingLog) and for
/// [`Concurrency`](crate::Concurrency), which keep one or three for each unit.
/// Permits are kept beyond the capacity: there are no more than requests in flight.
///
/// So a flood of new callers frees nobody who has a bucket and is over its
/// limit. It does hold newcomers up for as long as the flood's buckets last,
/// which with windows of a day is a day: give the store room for the callers
/// that you expect in one window. A newcomer who was held up starts with a
/// bucket of its own once there is room.
///
/// Cloning shares the buckets.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    shards: Box<[Mutex<Shard>]>,
    shard_capacity: usize,
    hash_key: (u64, u64),
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Inner {
    /// Without the key of the hash, by which callers could be made to meet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("shard_capacity", &self.shard_capacity)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// More shards than threads contend for; a sweep stops one of them only.
const SHARDS: usize = 64;

/// In place of a key. No key is like it: they start with a tag, or are empty.
const NEWCOMERS: &[u8] = &[0];

/// A shard is swept when this much time has passed since it last was.
const SWEEP_EVERY_US: u64 = 5_000_000;
/// The same for a shard that is full.
const SWEEP_FULL_EVERY_US: u64 = 50_000;

impl MemoryStore {
    /// A store with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts a store with settings.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            capacity: 1_000_000,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// How many buckets are kept now, those not yet forgotten among them.
    #[must_use]
    pub fn len(&self) -> usize {
        let shards = self.0.shards.iter();
        shards.map(|shard| lock(shard).buckets.len()).sum()
    }

    /// Whether no bucket is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Builds a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    capacity: usize,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// The most buckets to keep, one for each policy and caller. Default: 1,000,000.
    ///
    /// Rounded up to a multiple of the number of parts: 64, or fewer where a
    /// part would have fewer than 64 buckets. Each part keeps one bucket more
    /// per policy in use, for callers who found no room.
    pub const fn capacity(mut self, buckets: usize) -> Self {
        self.capacity = buckets;
        self
    }

    /// Takes the time from `clock`: for tests. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<impl Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the store. Memory is taken as callers come.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let shards = (self.capacity / SHARDS).clamp(1, SHARDS);
        MemoryStore(Arc::new(Inner {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            shard_capacity: self.capacity.div_ceil(shards),
            hash_key: (random(), random()),
            clock: self.clock,
        }))
    }
}

impl Store for MemoryStore {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        Answer::Now(Ok(match check.legs() {
            [leg] => self.0.check_one(check, leg),
            _ => self.0.check_all(check),
        }))
    }

    fn reset(&self, legs: &[Leg<'_>]) -> Answer<()> {
        for leg in legs {
            let place = self.0.place(leg);
            if let Some(shard) = self.0.shards.get(place.shard) {
                lock(shard).buckets.remove(&place.bucket);
            }
        }
        Answer::Now(Ok(()))
    }
}

type Shards<'a> = SmallVec<[MutexGuard<'a, Shard>; 2]>;

impl Inner {
    /// The only leg's bucket is there nearly always, and looked up once.
    fn check_one(&self, check: &Check<'_>, leg: &Leg<'_>) -> Decision {
        let place = self.place(leg);
        let Some(shard) = self.shards.get(place.shard) else {
            return check.decide(0, &mut []);
        };
        let mut shard = lock(shard);
        // Read under the lock, so that a bucket sees time go forwards.
        let now_us = clock::read(&*self.clock);
        shard.sweep_in_time(self.shard_capacity, now_us);
        let has_room = shard.buckets.len() < self.shard_capacity;
        let mut bucket = shard.buckets.get_mut(&place.bucket);
        if bucket.is_none() && !has_room {
            drop(shard);
            return self.check_all(check);
        }
        let mut slot = bucket
            .as_mut()
            .map(|bucket| bucket.take())
            .unwrap_or_default();
        let decision = check.decide_one(leg, now_us, &mut slot);
        match bucket {
            Some(bucket) => bucket.put(slot),
            None => shard.insert(place.bucket, slot),
        }
        decision
    }

    fn check_all(&self, check: &Check<'_>) -> Decision {
        let mut places: Places = check.legs().iter().map(|leg| self.place(leg)).collect();
        let mut shards = self.lock(&mut places);
        let now_us = clock::read(&*self.clock);
        let mut slots: SmallVec<[Slot; 2]> = SmallVec::new();
        for (leg, place) in check.legs().iter().zip(&mut places) {
            let held = place.held;
            let shard = held_by(&mut shards, held);
            shard.sweep_in_time(self.shard_capacity, now_us);
            slots.push(self.open(leg, place, shard));
        }
        let decision = check.decide(now_us, &mut slots);
        for (slot, place) in slots.into_iter().zip(&places) {
            held_by(&mut shards, place.held).put(place.bucket, slot);
        }
        decision
    }

    /// A leg's words; where there is no room for its bucket, those of newcomers.
    fn open(&self, leg: &Leg<'_>, place: &mut Place, shard: &mut Shard) -> Slot {
        let has_room = shard.has_room_for(place.bucket, self.shard_capacity);
        // Permits must be found again; there are no more than requests in flight.
        if !has_room && !leg.asked.quota.is_concurrency() {
            place.bucket = self.id(leg, NEWCOMERS);
        }
        shard.slot(place.bucket)
    }

    fn place(&self, leg: &Leg<'_>) -> Place {
        let bucket = self.id(leg, leg.key.as_bytes());
        Place {
            bucket,
            // The high half, as a fraction of all shards.
            shard: (((bucket.1 >> 32) * self.shards.len() as u64) >> 32) as usize,
            held: 0,
        }
    }

    /// The bucket of a policy and a caller, or without a caller of newcomers.
    fn id(&self, leg: &Leg<'_>, key: &[u8]) -> Id {
        // Each policy and algorithm hashes under a secret of its own.
        let (first, second) = self.hash_key;
        let (name_first, name_second) = leg.policy.hash;
        let kind = u64::from(leg.asked.quota.letter());
        let hasher = SipHasher13::new_with_keys(first ^ name_first, second ^ name_second ^ kind);
        let hash = hasher.hash(key);
        (hash.h1, hash.h2)
    }

    /// Locks the shards of all places, each once, always in the same order.
    fn lock(&self, places: &mut [Place]) -> Shards<'_> {
        let mut wanted: SmallVec<[usize; 2]> = places.iter().map(|place| place.shard).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for place in places {
            place.held = wanted.partition_point(|shard| *shard < place.shard);
        }
        let wanted = wanted.iter();
        wanted
            .filter_map(|shard| self.shards.get(*shard).map(lock))
            .collect()
    }
}

type Places = SmallVec<[Place; 2]>;

/// Where a leg's bucket is.
struct Place {
    bucket: Id,
    shard: usize,
    /// Which of the locked shards that is.
    held: usize,
}

#[allow(clippy::indexing_slicing)] // `lock` made both the list and the index into it.
fn held_by<'s>(shards: &'s mut Shards<'_>, held: usize) -> &'s mut Shard {
    &mut shards[held]
}

/// 128 bits of a keyed hash: whoever does not know the process's key cannot make two callers meet.
type Id = (u64, u64);

#[derive(Debug, Default)]
struct Shard {
    buckets: HashMap<Id, Bucket, BuildHasherDefault<AlreadyHashed>>,
    swept_at_us: u64,
}

#[derive(Clone, Debug)]
struct Bucket {
    state: State,
    /// From then on the bucket means the same as none.
    drained_at_us: u64,
}

impl Bucket {
    /// Its words, taken out until they are [put](Self::put) back.
    #[inline]
    fn take(&mut self) -> Slot {
        Slot {
            state: Some(mem::take(&mut self.state)),
            drained_at_us: None,
        }
    }

    #[inline]
    fn put(&mut self, slot: Slot) {
        if let Some(state) = slot.state {
            self.state = state;
        }
        if let Some(drained_at_us) = slot.drained_at_us {
            self.drained_at_us = drained_at_us;
        }
    }
}

impl Shard {
    /// Forgets what is drained when it is time to.
    fn sweep_in_time(&mut self, capacity: usize, now_us: u64) {
        let is_full = self.buckets.len() >= capacity;
        let pause_us = if is_full {
            SWEEP_FULL_EVERY_US
        } else {
            SWEEP_EVERY_US
        };
        // A clock that went backwards makes it time, too.
        if now_us.wrapping_sub(self.swept_at_us) >= pause_us {
            self.sweep(now_us);
        }
    }

    /// A bucket that is there has room.
    fn has_room_for(&self, bucket: Id, capacity: usize) -> bool {
        self.buckets.len() < capacity || self.buckets.contains_key(&bucket)
    }

    fn slot(&mut self, id: Id) -> Slot {
        self.buckets
            .get_mut(&id)
            .map(Bucket::take)
            .unwrap_or_default()
    }

    fn put(&mut self, id: Id, slot: Slot) {
        match self.buckets.get_mut(&id) {
            Some(bucket) => bucket.put(slot),
            None => self.insert(id, slot),
        }
    }

    /// Of one that is not there, if there is something to keep.
    fn insert(&mut self, id: Id, slot: Slot) {
        if let (Some(state), Some(drained_at_us)) = (slot.state, slot.drained_at_us) {
            let bucket = Bucket {
                state,
                drained_at_us,
            };
            self.buckets.insert(id, bucket);
        }
    }

    #[cold]
    fn sweep(&mut self, now_us: u64) {
        self.swept_at_us = now_us;
        self.buckets
            .retain(|_, bucket| bucket.drained_at_us > now_us);
        if self.buckets.capacity() > 4 * self.buckets.len().max(16) {
            self.buckets.shrink_to_fit();
        }
    }
}

/// Takes one word of a key that is a hash already.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // Nothing panics while it holds a shard; if something did, the bucket that it
    // had in hand would read as new, and all others are whole.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The standard library seeds its hasher from the system's randomness.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
