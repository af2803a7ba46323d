//! Who waits in this process for a turn in the same bucket.
//!
//! A place in the middle of a queue cannot be given back: who stands behind it
//! was told their moment, and the place would be had twice. So when one
//! leaves, those behind move up, and the last place is given back. If that is
//! somebody's in another process, it stays taken. So does what is left after its
//! turn has come.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use crate::{Key, policy::Name};

/// A store by its address, a policy with its kind, and a caller.
pub(crate) type Bucket = (usize, Name, char, Key);

static LINES: LazyLock<Mutex<Lines>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Lines {
    by_bucket: HashMap<Bucket, Line>,
    /// How many there may be before those of no use are looked for.
    many: usize,
}

struct Line {
    /// In the order of their turns.
    places: Vec<Arc<Mutex<Place>>>,
    /// The nanosecond at which the bucket is full again, as far as is known here.
    full_at_ns: u64,
    /// Left, and not given back yet.
    free_ns: u64,
    is_giving: bool,
    last_moment: Instant,
}

struct Place {
    moment: Instant,
    /// The nanosecond at which the bucket is full again, by this and all before.
    full_at_ns: u64,
    waker: Option<Waker>,
}

/// A place in a line, until it is dropped.
pub(crate) struct Turn {
    bucket: Bucket,
    place: Arc<Mutex<Place>>,
}

/// What is to be given back at the end of a line, if the bucket is full again
/// in exactly that microsecond.
pub(crate) struct Free {
    bucket: Bucket,
    full_at_ns: u64,
    pub(crate) level_ns: u64,
}

impl Turn {
    /// With it, what of the line can be given back now that its end is known.
    pub(crate) fn new(bucket: Bucket, moment: Instant, full_at_ns: u64) -> (Self, Option<Free>) {
        let place = Arc::new(Mutex::new(Place {
            moment,
            full_at_ns,
            waker: None,
        }));
        let mut lines = lock(&LINES);
        let line = lines.line(&bucket, moment);
        line.full_at_ns = line.full_at_ns.max(full_at_ns);
        line.last_moment = line.last_moment.max(moment);
        // Answers may come in another order than decisions were made in.
        let is_before = |other: &Arc<Mutex<Place>>| lock(other).full_at_ns < full_at_ns;
        let behind = line.places.partition_point(is_before);
        line.places.insert(behind, Arc::clone(&place));
        let free = line.next_free(&bucket);
        drop(lines);
        (Self { bucket, place }, free)
    }

    /// When the turn comes, as far as is known now; `waker` is woken when it
    /// comes sooner.
    pub(crate) fn moment(&self, waker: &Waker) -> Instant {
        let mut place = lock(&self.place);
        place.waker = Some(waker.clone());
        place.moment
    }

    /// Whether it has come.
    pub(crate) fn has_come(&self) -> bool {
        lock(&self.place).moment <= Instant::now()
    }

    /// Leaves before the turn came, and those behind move up.
    pub(crate) fn leave(self, level_ns: u64) -> Option<Free> {
        let mut woken = Vec::new();
        let mut lines = lock(&LINES);
        let line = lines.by_bucket.get_mut(&self.bucket)?;
        let own = |place: &Arc<Mutex<Place>>| Arc::ptr_eq(place, &self.place);
        let behind = line.places.iter().skip_while(|place| !own(place)).skip(1);
        for place in behind {
            let mut place = lock(place);
            let sooner = place.moment.checked_sub(Duration::from_nanos(level_ns));
            place.moment = sooner.unwrap_or(place.moment);
            place.full_at_ns = place.full_at_ns.saturating_sub(level_ns);
            woken.extend(place.waker.take());
        }
        line.free_ns += level_ns;
        let free = line.next_free(&self.bucket);
        drop(lines);
        for waker in woken {
            waker.wake();
        }
        free
    }
}

impl Lines {
    fn line(&mut self, bucket: &Bucket, moment: Instant) -> &mut Line {
        if self.by_bucket.len() > self.many {
            self.by_bucket.retain(|_, line| line.is_of_use());
            self.many = 2 * self.by_bucket.len().max(512);
        }
        self.by_bucket
            .entry(bucket.clone())
            .or_insert_with(|| Line {
                places: Vec::new(),
                full_at_ns: 0,
                free_ns: 0,
                is_giving: false,
                last_moment: moment,
            })
    }

    /// Forgets a line of no use.
    fn tidy(&mut self, bucket: &Bucket) {
        if self
            .by_bucket
            .get(bucket)
            .is_some_and(|line| !line.is_of_use())
        {
            self.by_bucket.remove(bucket);
        }
    }
}

impl Line {
    /// Somebody stands in it, or what was left may still be given back.
    fn is_of_use(&self) -> bool {
        let is_late = self.last_moment <= Instant::now();
        !self.places.is_empty() || self.is_giving || (self.free_ns > 0 && !is_late)
    }

    /// One at a time: what comes of it decides on the next.
    fn next_free(&mut self, bucket: &Bucket) -> Option<Free> {
        if self.is_giving || self.free_ns == 0 {
            return None;
        }
        self.is_giving = true;
        Some(Free {
            bucket: bucket.clone(),
            full_at_ns: self.full_at_ns,
            level_ns: self.free_ns,
        })
    }
}

impl Free {
    /// The mark under which it may be given back.
    pub(crate) const fn since(&self) -> u64 {
        self.full_at_ns / 1_000
    }

    /// So much of it was given back. What else is there to give back now?
    pub(crate) fn given(self, level_ns: u64) -> Option<Self> {
        let mut lines = lock(&LINES);
        let line = lines.by_bucket.get_mut(&self.bucket)?;
        line.is_giving = false;
        // Somebody may have come meanwhile, or left.
        let is_news =
            level_ns > 0 || line.full_at_ns != self.full_at_ns || line.free_ns != self.level_ns;
        if level_ns > 0 {
            line.free_ns = line.free_ns.saturating_sub(self.level_ns);
            line.full_at_ns = line.full_at_ns.saturating_sub(level_ns);
        }
        let next = is_news.then(|| line.next_free(&self.bucket)).flatten();
        lines.tidy(&self.bucket);
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = lock(&LINES);
        if let Some(line) = lines.by_bucket.get_mut(&self.bucket) {
            line.places.retain(|place| !Arc::ptr_eq(place, &self.place));
        }
        lines.tidy(&self.bucket);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
