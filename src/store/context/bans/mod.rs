//! What this process knows of bans, pauses and strikes beside the store.
//!
//! A ban by hand or a pause denies here from the moment at which it is stated, and is sent until the
//! store has confirmed it or it has ended. Strikes that the store did not count are sent, too. A ban
//! that the store has confirmed or reported denies here only while the store fails, and a later
//! decision of the store may end it.

mod sending;

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt, mem,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    Clock, Decision, PolicyDecision, Source, StoreError,
    charge::{Charge, Check},
    clock::{self, SystemClock},
    quota::{arithmetic::Reading, penalty::PenaltyParams, window::LAST_END_MS},
    store::{Store, decide::policy_decision, tasks::Tasks},
    util::{hash::SecretHasher, lock::lock},
};

/// The most bans that are known, and the most callers whose strikes are kept. A ban takes 50 bytes,
/// and kept strikes about 300 and a key.
const MOST_KNOWN: usize = 65_536;
const MOST_STRUCK: usize = 8_192;
/// Times are rounded to milliseconds, here and in the store.
const ROUNDING_MS: u64 = 2;

/// Of a bucket.
type Id = (u64, u64);

/// The bans, pauses and strikes that this process knows of the buckets of one store.
pub(crate) struct Bans {
    clock: Arc<dyn Clock>,
    hash: SecretHasher,
    tasks: Tasks,
    /// How many bans are known, and how many buckets have bans or strikes to be sent: so that checks
    /// take no lock while there are none.
    known: AtomicUsize,
    unconfirmed: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<Id, KnownBan>,
    unconfirmed: HashMap<Id, Unconfirmed>,
    /// The store, as its users hold it.
    stores: Vec<Weak<dyn Store>>,
    is_sending: bool,
    /// Until when a full table is not searched for bans that have ended.
    is_full_until_ms: u64,
    resets: u64,
}

struct KnownBan {
    /// By the clock of this process.
    until_ms: u64,
    /// When the store decided it, by the store's clock. `None`: it has not.
    decided_us: Option<u64>,
}

/// What the store has not confirmed of one bucket, in addition to its known ban.
struct Unconfirmed {
    charge: Charge<'static>,
    strikes: Strikes,
    /// When these strikes are forgotten.
    until_ms: u64,
}

/// Strikes that were not counted in the store, and those not counted in the buckets of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strikes {
    pub(crate) store: u64,
    pub(crate) local: u64,
}

impl Strikes {
    /// Returns the strikes of a call that failed.
    pub(crate) fn of_failed(strikes: u64, error: &StoreError) -> Self {
        // A call that may have run must not count them twice.
        let store = if error.may_have_run() { 0 } else { strikes };
        let local = strikes;
        Self { store, local }
    }

    const fn are_none(self) -> bool {
        self.store == 0 && self.local == 0
    }
}

impl Bans {
    pub(super) fn new(clock: Option<Arc<dyn Clock>>, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self {
            clock: clock.unwrap_or_else(|| Arc::new(SystemClock::new())),
            hash: SecretHasher::default(),
            tasks,
            known: AtomicUsize::new(0),
            unconfirmed: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Adds a user of the store, through which bans and strikes may be sent.
    pub(crate) fn attach(&self, store: &Arc<dyn Store>) {
        let mut state = lock(&self.state);
        state.stores.retain(|store| store.strong_count() > 0);
        state.stores.push(Arc::downgrade(store));
    }

    fn id(&self, charge: &Charge<'_>) -> Id {
        let letter = charge.demand.quota.letter();
        self.hash
            .hash_128(charge.policy.hash, letter, charge.key_bytes())
    }

    fn now_ms(&self) -> u64 {
        clock::read(&*self.clock) / 1_000
    }

    /// Records how much is known, after each change of the state.
    fn record_counts(&self, state: &State) {
        self.known.store(state.known.len(), Ordering::Release);
        self.unconfirmed
            .store(state.unconfirmed.len(), Ordering::Release);
    }

    /// Returns whether anything is to be sent.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Acquire) > 0
    }

    /// Bans the callers of these charges, whose cost is the time in milliseconds, here and in the
    /// store.
    pub(crate) fn ban(self: &Arc<Self>, charges: &[Charge<'_>]) {
        let (now_ms, mut state) = (self.now_ms(), lock(&self.state));
        for charge in charges {
            let until_ms = now_ms.saturating_add(charge.demand.level).min(LAST_END_MS);
            let id = self.id(charge);
            let known = state.known.get(&id);
            if known.is_some_and(|known| known.decided_us.is_none() && known.until_ms >= until_ms) {
                continue;
            }
            let ban = KnownBan {
                until_ms,
                decided_us: None,
            };
            state.known.insert(id, ban);
            let entry = state.unconfirmed.entry(id);
            entry.or_insert_with(|| Unconfirmed::new(charge));
        }
        self.record_counts(&state);
        drop(state);
        self.start_sending();
    }

    /// Keeps strikes that were not counted.
    pub(crate) fn keep_strikes(self: &Arc<Self>, charge: &Charge<'_>, strikes: Strikes) {
        let Some(penalty) = charge.demand.quota.penalty() else {
            return;
        };
        let (now_ms, mut state) = (self.now_ms(), lock(&self.state));
        let is_full = state.unconfirmed.len() >= MOST_STRUCK;
        let unconfirmed = match state.unconfirmed.entry(self.id(charge)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(entry) => entry.insert(Unconfirmed::new(charge)),
        };
        unconfirmed.until_ms = unconfirmed
            .until_ms
            .max(now_ms.saturating_add(penalty.window_ms));
        let kept = &mut unconfirmed.strikes;
        kept.store = kept.store.saturating_add(strikes.store);
        kept.local = kept.local.saturating_add(strikes.local);
        self.record_counts(&state);
        drop(state);
        self.start_sending();
    }

    /// Takes out strikes, chosen by `part`, to count them. The caller keeps them again if that fails.
    pub(crate) fn take_strikes(
        &self,
        charge: &Charge<'_>,
        part: impl Fn(&mut Strikes) -> &mut u64,
    ) -> u64 {
        if !self.has_unconfirmed() || charge.demand.quota.penalty().is_none() {
            return 0;
        }
        let now_ms = self.now_ms();
        let mut state = lock(&self.state);
        let unconfirmed = state.unconfirmed.get_mut(&self.id(charge));
        let unconfirmed = unconfirmed.filter(|unconfirmed| unconfirmed.until_ms > now_ms);
        unconfirmed.map_or(0, |unconfirmed| mem::take(part(&mut unconfirmed.strikes)))
    }

    /// Returns the denial by bans that the store has not confirmed.
    pub(crate) fn denial_unconfirmed(&self, check: &Check<'_>) -> Option<Decision> {
        if !self.has_unconfirmed() {
            return None;
        }
        self.denial(check, |known| known.decided_us.is_none())
    }

    /// Returns the denial by bans that this process knows.
    pub(crate) fn denial_known(&self, check: &Check<'_>) -> Option<Decision> {
        if self.known.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.denial(check, |_| true)
    }

    fn denial(&self, check: &Check<'_>, counts: impl Fn(&KnownBan) -> bool) -> Option<Decision> {
        let operation = check.operation();
        if !operation.asks_for_units() {
            return None;
        }
        let now_us = clock::read(&*self.clock);
        let state = lock(&self.state);
        let banned = |charge: &Charge<'_>| {
            let penalty = charge.demand.quota.penalty()?;
            let known = state.known.get(&self.id(charge))?;
            let counts = known.until_ms > now_us / 1_000 && counts(known);
            let standing = penalty.ban(known.until_ms, 0);
            let reading = Reading {
                standing,
                hold: None,
            };
            counts.then(|| policy_decision(charge, operation, 0, now_us, &reading))
        };
        let bans: Vec<_> = check.charges().iter().filter_map(banned).collect();
        drop(state);
        (!bans.is_empty()).then(|| Decision::new(operation, bans, 0))
    }

    /// Learns from a decision of the store which callers of these charges are banned, and which are no
    /// longer.
    pub(crate) fn learn(&self, charges: &[Charge<'_>], decision: &Decision) {
        let knows = self.known.load(Ordering::Acquire) > 0;
        if decision.source() != Source::Store {
            return;
        }
        let found = |policy: &PolicyDecision| {
            if !policy.is_of_penalty() {
                return None;
            }
            let (quota, standing) = policy.standing();
            let is_banned = |penalty: &PenaltyParams| penalty.is_banned(&standing);
            let is_banned = quota.penalty().map(is_banned)?;
            Some((is_banned, standing.mark))
        };
        let mut learned = decision
            .policies()
            .filter_map(|policy| Some((policy, found(policy)?)))
            .filter(|(_, (is_banned, _))| *is_banned || knows)
            .peekable();
        if learned.peek().is_none() {
            return;
        }
        let (now_ms, mut state) = (self.now_ms(), lock(&self.state));
        for (policy, (is_banned, ends_ms)) in learned {
            let mut charges = charges.iter();
            let charge = charges.find(|charge| charge.policy == *policy.interned_name());
            let Some(id) = charge.map(|charge| self.id(charge)) else {
                continue;
            };
            let decided_us = policy.decided_at_us();
            let until_ms = match ends_ms {
                // The longest ban of any clock.
                LAST_END_MS.. => LAST_END_MS,
                _ => now_ms + ends_ms.saturating_sub(decided_us / 1_000),
            };
            state.learn(id, is_banned.then_some(until_ms), decided_us, now_ms);
        }
        self.record_counts(&state);
    }

    /// Forgets the bans and strikes of these buckets, which are reset.
    pub(crate) fn forget(&self, charges: &[Charge<'_>]) {
        let mut state = lock(&self.state);
        state.resets += 1;
        for id in charges.iter().map(|charge| self.id(charge)) {
            state.known.remove(&id);
            state.unconfirmed.remove(&id);
        }
        self.record_counts(&state);
    }
}

impl State {
    /// Learns until when the store bans a caller, if it does.
    fn learn(&mut self, id: Id, until_ms: Option<u64>, decided_us: u64, now_ms: u64) {
        let known = self.known.get(&id);
        let Some(until_ms) = until_ms else {
            // A check that was decided before the ban does not show that it has ended.
            if known.is_some_and(|known| known.decided_us.is_some_and(|at| at < decided_us)) {
                self.known.remove(&id);
            }
            return;
        };
        // A ban of this process that lasts longer is not confirmed yet.
        let is_longer = |known: &KnownBan| {
            known.decided_us.is_none() && known.until_ms > until_ms.saturating_add(ROUNDING_MS)
        };
        if known.is_some_and(is_longer) || known.is_none() && self.is_full(now_ms) {
            return;
        }
        let ban = KnownBan {
            until_ms,
            decided_us: Some(decided_us),
        };
        self.known.insert(id, ban);
        if let Entry::Occupied(entry) = self.unconfirmed.entry(id) {
            if entry.get().strikes.are_none() {
                entry.remove();
            }
        }
    }

    fn is_full(&mut self, now_ms: u64) -> bool {
        if self.known.len() >= MOST_KNOWN && self.is_full_until_ms <= now_ms {
            self.known.retain(|_, known| known.until_ms > now_ms);
            self.is_full_until_ms = now_ms + 1_000;
        }
        self.known.len() >= MOST_KNOWN
    }
}

impl KnownBan {
    /// Returns whether it is still to be sent.
    fn is_sent_at(&self, now_ms: u64) -> bool {
        self.decided_us.is_none() && self.until_ms > now_ms
    }
}

impl Unconfirmed {
    fn new(charge: &Charge<'_>) -> Self {
        Self {
            charge: charge.clone().into_owned(),
            strikes: Strikes::default(),
            until_ms: 0,
        }
    }
}

impl fmt::Debug for Bans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bans")
    }
}
