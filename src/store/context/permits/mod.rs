//! Permits that this process holds, and the statements by which its stores learn of them.
//!
//! A store knows holders, not permits: each process has one entry under a key,
//! with a count and an expiry. All messages of a process about a key carry its exact
//! count, so the next message corrects whatever was lost, late or executed out of order.
//! One renewal is enough for all of its permits.

mod count;
mod holder;
mod queue;
mod retry;
mod runtimes;

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

pub(crate) use self::queue::NextStep;
use self::{count::Outcome, holder::Holder};
use super::SharedStore;
use crate::{
    Key, StoreError,
    charge::Charge,
    policy_name::Name,
    quota::EXACT,
    util::{lock::lock, random::random, time::later},
};

type Bucket = (Name, Key);

/// The permits that this process holds in one store.
pub(crate) struct Holders {
    id: u64,
    version: AtomicU64,
    /// Until then, a message whose reply was lost may still reach the store.
    lost_until: Mutex<Option<Instant>>,
    /// The holders that hold permits, have waiters, or must send a statement.
    by_bucket: Mutex<HashMap<Bucket, Arc<Holder>>>,
    /// How many callers wait for permits, of all buckets.
    waiting: AtomicUsize,
}

impl Default for Holders {
    fn default() -> Self {
        Self {
            // Exact as a Lua number. Two processes practically never draw the same.
            id: random() % (EXACT - 1) + 1,
            version: AtomicU64::new(1),
            lost_until: Mutex::default(),
            by_bucket: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl Holders {
    /// Returns how many units callers hold, of all buckets.
    pub(crate) fn units(&self) -> u64 {
        self.by_bucket().values().map(|holder| holder.units()).sum()
    }

    /// Returns the next version, in steps of 4. A holder's groups grow by one for each
    /// version, so a new holder of the same key starts beyond the groups that were used.
    fn next_version(&self) -> u64 {
        4 + self.version.fetch_add(4, Ordering::Relaxed)
    }

    /// Records a lost message. The store forgets its effect after a lifetime.
    fn record_loss(&self, lifetime: Duration) {
        let until = later(Instant::now(), lifetime);
        let mut lost_until = lock(&self.lost_until);
        *lost_until = lost_until.max(Some(until));
    }

    fn may_have_lost(&self) -> bool {
        lock(&self.lost_until).is_some_and(|until| Instant::now() < until)
    }

    fn by_bucket(&self) -> MutexGuard<'_, HashMap<Bucket, Arc<Holder>>> {
        lock(&self.by_bucket)
    }

    fn forget_idle(&self, bucket: &Bucket) {
        let mut by_bucket = self.by_bucket();
        let is_idle = by_bucket.get(bucket).is_some_and(|known| known.is_idle());
        let idle = is_idle.then(|| by_bucket.remove(bucket));
        if by_bucket.capacity() > 1_024.max(8 * by_bucket.len()) {
            let room = 2 * by_bucket.len();
            by_bucket.shrink_to(room);
        }
        drop(by_bucket);
        // Dropped without the lock: this holder may be the last to use its store.
        drop(idle);
    }
}

impl SharedStore {
    /// Calls `then` with the holder, which cannot be forgotten meanwhile.
    fn with_holder<T>(
        &self,
        charge: &mut Charge<'_>,
        then: impl FnOnce(&Arc<Holder>, &mut Charge<'_>) -> T,
    ) -> T {
        let bucket = (charge.policy.clone(), Key::clone(&charge.key));
        let mut by_bucket = self.context.holders.by_bucket();
        let holder = by_bucket.entry(bucket).or_insert_with_key(|bucket| {
            Holder::new(bucket.clone(), self, charge.clone().into_owned())
        });
        then(holder, charge)
    }

    /// Adds the statement to a charge, before the store is asked for its units.
    pub(crate) fn take_permit(&self, charge: &mut Charge<'_>) -> Take {
        charge.demand.to_mut().statement = None;
        let units = charge.demand.cost;
        self.with_holder(charge, |holder, charge| {
            let released_before = lock(&holder.queue).released();
            Take {
                group: holder.begin(charge),
                holder: Arc::clone(holder),
                begun: Instant::now(),
                units,
                released_before,
                is_decided: false,
            }
        })
    }

    /// Takes over units that [`HeldPermit::leave`] left held.
    pub(crate) fn adopt_permit(&self, charge: &mut Charge<'_>) -> HeldPermit {
        let units = charge.demand.cost;
        self.with_holder(charge, |holder, _| HeldPermit {
            holder: Arc::clone(holder),
            units,
        })
    }

    /// Returns whether the caller of this number must wait behind others for units of this charge:
    /// those that came before it and were not called, or, for a new caller, all that wait.
    pub(crate) fn has_earlier(&self, charge: &Charge<'_>, number: u64, is_new: bool) -> bool {
        let holders = &self.context.holders;
        if holders.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let bucket = (charge.policy.clone(), Key::clone(&charge.key));
        let holder = holders.by_bucket().get(&bucket).map(Arc::clone);
        holder.is_some_and(|holder| lock(&holder.queue).has_earlier(number, is_new))
    }

    /// Returns the place of this number in the queue of callers that wait for units of this charge,
    /// unless `most` wait there.
    pub(crate) fn enter_permit_queue(
        &self,
        charge: &mut Charge<'_>,
        number: u64,
        most: usize,
    ) -> Option<PermitWaiter> {
        let units = charge.demand.cost;
        self.with_holder(charge, |holder, _| {
            lock(&holder.queue)
                .enter(number, units, most)
                .then(|| PermitWaiter::new(Arc::clone(holder), number))
        })
    }
}

/// A request to the store for units. If it is dropped undecided, it counts as lost: the store may
/// have granted them.
#[derive(Debug)]
pub(crate) struct Take {
    holder: Arc<Holder>,
    group: u64,
    begun: Instant,
    units: u64,
    /// How many units this process had released before.
    released_before: u64,
    is_decided: bool,
}

impl Take {
    fn decide(&mut self, outcome: Outcome, runtime: Option<&Handle>) {
        if !mem::replace(&mut self.is_decided, true) {
            self.holder
                .decided(self.group, outcome, runtime, self.begun);
        }
    }

    pub(crate) fn policy(&self) -> &str {
        &self.holder.bucket.0.text
    }

    pub(crate) const fn released_before(&self) -> u64 {
        self.released_before
    }

    pub(crate) fn granted(&mut self, runtime: Option<&Handle>) -> HeldPermit {
        self.decide(Outcome::Granted(self.units), runtime);
        HeldPermit {
            holder: Arc::clone(&self.holder),
            units: self.units,
        }
    }

    /// Records that the store granted nothing.
    pub(crate) fn denied(&mut self) {
        self.decide(Outcome::Denied, None);
    }

    pub(crate) fn lost(&mut self, runtime: Option<&Handle>) {
        self.decide(Outcome::Lost, runtime);
    }

    /// Records that the store failed.
    pub(crate) fn failed(&mut self, error: &StoreError, runtime: Option<&Handle>) {
        if error.may_have_run() || error.is_foreign_reply() {
            self.lost(runtime);
        } else {
            self.denied();
        }
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        self.decide(Outcome::Lost, None);
    }
}

/// Units that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldPermit {
    holder: Arc<Holder>,
    units: u64,
}

impl HeldPermit {
    /// Leaves the units held, for a caller to [adopt](SharedStore::adopt_permit).
    pub(crate) fn leave(mut self) {
        self.units = 0;
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        if self.units > 0 {
            self.holder.release(self.units);
        }
    }
}

/// A place in the queue for permits of one key.
#[derive(Debug)]
pub(crate) struct PermitWaiter {
    holder: Arc<Holder>,
    number: u64,
    /// Once it was admitted: how many units the store had left.
    left: Option<u64>,
}

impl PermitWaiter {
    fn new(holder: Arc<Holder>, number: u64) -> Self {
        holder.holders().waiting.fetch_add(1, Ordering::Relaxed);
        Self {
            holder,
            number,
            left: None,
        }
    }

    pub(crate) fn is_for(&self, store: &SharedStore, policy: &str) -> bool {
        self.holder.is_of(store) && &*self.policy().text == policy
    }

    pub(crate) fn policy(&self) -> &Name {
        &self.holder.bucket.0
    }

    /// Returns whether to ask the store now. `waker` is woken when that changes.
    pub(crate) fn next_step(&self, waker: &Waker) -> NextStep {
        lock(&self.holder.queue).next_step(self.number, waker)
    }

    /// Records that the caller asks although its turn has not come.
    pub(crate) fn record_ask(&self) {
        lock(&self.holder.queue).record_ask(self.number);
    }

    /// Records that the caller was denied and keeps waiting. The store had `left` units left, and
    /// this process had released so many before the check.
    pub(crate) fn record_denial(&self, left: u64, released_before: u64) {
        let woken = lock(&self.holder.queue).denied(self.number, left, released_before);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Leaves the queue after an admission, which left so many units in the store.
    pub(crate) fn admitted(mut self, left: u64) {
        self.left = Some(left);
    }
}

impl Drop for PermitWaiter {
    fn drop(&mut self) {
        let woken = lock(&self.holder.queue).leave(self.number, self.left);
        woken.into_iter().for_each(Waker::wake);
        let waiting = &self.holder.holders().waiting;
        waiting.fetch_sub(1, Ordering::Relaxed);
        self.holder.forget_if_idle();
    }
}
