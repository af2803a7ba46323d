//! Where buckets are kept and decided upon, atomically.
//!
//! A [`Store`] sees policy names, quotas, key bytes and costs; never HTTP. It
//! answers at once or later: memory without allocating or awaiting, Redis with
//! one boxed future beside its round trip.

mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::{borrow::Cow, fmt, pin::Pin, sync::Arc};

pub use self::memory::{MemoryStore, MemoryStoreBuilder};
use crate::{Decision, Key, Quota, StoreError, policy::Name};

/// Keeps buckets and decides.
///
/// Implement it to wrap one of this crate's stores: to count, to log, to fail
/// on purpose in a test ([`StoreError::unavailable`]). Decisions come from the
/// stores of this crate; building them elsewhere is not open yet.
///
/// A check names one or more legs. The store reads all of them at one instant,
/// and charges all or none.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides on a check and, if every leg has room and the check
    /// [charges](Check::charges), takes the costs.
    fn check(&self, check: &Check<'_>) -> Answer<Decision>;

    /// Forgets what was taken: each leg's bucket is as new.
    fn reset(&self, legs: &[Leg<'_>]) -> Answer<()>;

    /// The name under which this leg's bucket is kept, where the store has
    /// names that an operator can look at.
    fn storage_key(&self, leg: &Leg<'_>) -> Option<String> {
        let _ = leg;
        None
    }
}

impl<T: Store + ?Sized> Store for Arc<T> {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        (**self).check(check)
    }

    fn reset(&self, legs: &[Leg<'_>]) -> Answer<()> {
        (**self).reset(legs)
    }

    fn storage_key(&self, leg: &Leg<'_>) -> Option<String> {
        (**self).storage_key(leg)
    }
}

/// A question to a store.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    legs: &'a [Leg<'a>],
    charges: bool,
}

impl<'a> Check<'a> {
    /// Takes the costs if all legs have room.
    pub(crate) const fn charging(legs: &'a [Leg<'a>]) -> Self {
        Self {
            legs,
            charges: true,
        }
    }

    /// Only looks.
    pub(crate) const fn peeking(legs: &'a [Leg<'a>]) -> Self {
        Self {
            legs,
            charges: false,
        }
    }

    /// The policies, each on its own bucket. Never empty.
    #[must_use]
    pub const fn legs(&self) -> &'a [Leg<'a>] {
        self.legs
    }

    /// Whether the costs are to be taken. Otherwise nothing may be written.
    #[must_use]
    pub const fn charges(&self) -> bool {
        self.charges
    }
}

/// One policy of a check, and whose bucket.
#[derive(Clone, Debug)]
pub struct Leg<'a> {
    pub(crate) policy: &'a Name,
    pub(crate) quota: Quota,
    pub(crate) key: Cow<'a, Key>,
    pub(crate) cost: u64,
}

impl Leg<'_> {
    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy.text
    }

    /// The quota.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// Who is asking. Never keep or log these bytes: they are credentials.
    #[must_use]
    pub fn key_bytes(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// How many units are asked for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }
}

/// What a store gives: the result, or a future of it.
pub enum Answer<T> {
    /// Here it is.
    Now(Result<T, StoreError>),
    /// It is on its way.
    Later(BoxFuture<T>),
}

/// The future of a store's answer.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

impl<T> Answer<T> {
    /// Waits, where there is something to wait for.
    pub(crate) async fn wait(self) -> Result<T, StoreError> {
        match self {
            Self::Now(result) => result,
            Self::Later(future) => future.await,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(result) => f.debug_tuple("Now").field(result).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}
