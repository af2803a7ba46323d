//! Limits that an operator changes at run time, for a fleet and without a deployment.
//!
//! A [`Control`] is a small document: other quotas for single callers, bans, modes of policies,
//! and list entries, each with an end, an author and a reason. With a
//! [`RedisStore`](crate::RedisStore), the document is one key in Redis. Each process looks at it
//! about once a second and holds it in memory: no request asks Redis for it, and it survives an
//! outage.
//!
//! The document has precedence over files and code. The [guide] has the rights that it needs,
//! its limits, and what happens when Redis is down.
//!
//! [guide]: https://docs.rs/tower-throttle/0.1/tower_throttle/guides/control/

mod applied;
mod caller;
mod change;
mod document;
mod edit;
mod end;
mod entry;
mod error;
mod held;
mod state;
mod sync;
#[cfg(test)]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
mod tests;
mod wire;

use std::sync::Arc;

pub use self::caller::Caller;
pub(crate) use self::held::{Held, Subscriber};
pub use self::{
    change::Change,
    end::End,
    entry::{Action, Entry},
    error::ControlError,
    state::Status,
};
#[cfg(feature = "redis")]
pub(crate) use self::{
    document::{HEAD_BYTES, MAX_BYTES},
    held::Source,
};
use self::{edit::Edit, entry::Subject, held::Memory};
pub use crate::overrides::Mode;
use crate::{
    Clock, ConfigError, Fingerprint, Key, List, Quota,
    clock::SystemClock,
    fingerprint::Secret,
    lists,
    overrides::Overrides,
    policy_name::{invalid_policy_name, is_name},
};

/// Changes limits at run time: quotas of single callers, bans, modes of policies, and lists.
///
/// [`RedisStore::control`](crate::RedisStore::control) returns that of a fleet,
/// [`MemoryStore::control`](crate::MemoryStore::control) and [`in_memory`](Self::in_memory) one
/// of a single process. Layers and limiters that are built with it, by
/// [`LimiterBuilder::control`](crate::LimiterBuilder::control) or the same method of a layer's
/// builder, follow it for as long as they live.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::control::{Control, Mode};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let control = Control::in_memory(); // or `redis.control()`
///
/// // one customer gets more, until the migration is over
/// control
///     .override_quota("plan", "customer-17", "5000000 per month".parse()?)
///     .until(Duration::from_secs(7 * 86_400))
///     .author("ann")
///     .because("migration, ticket 4711")
///     .await?;
/// // one caller is denied for an hour
/// control.ban("plan", "customer-18", Duration::from_secs(3_600)).because("scraping").await?;
/// // one policy denies nothing, until this is removed
/// control.set_mode("burst", Mode::Shadow).because("it denied too much").await?;
///
/// assert_eq!(control.entries().len(), 3);
/// assert!(control.clear_override("plan", "customer-17").await?);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// **A change** is in effect in this process when its future returns, and in all others that share
/// the document within two seconds. Changes that several processes make at the same time are all
/// made. A future that is dropped before it returns may have made its change.
///
/// **Keys** are kept as [`Fingerprint`]s, and may be given as such: hashes with the store's
/// [secret](crate::RedisStoreBuilder::secret). So a document works for stores with the same secret,
/// and keys cannot be read from it. A [label](Change::label) names a caller for people.
///
/// **A document that cannot be read** changes nothing: too large, of a newer version of this crate,
/// or not a document. The process keeps what it knows, logs a warning under
/// `tower_throttle::control`, and reports it in [`status`](Self::status).
///
/// **Changes that Redis has lost** are stored again by a process that knows them, with a warning that
/// counts them. Its user needs the rights `+eval` and `+set`.
///
/// **Bounded**: 10,000 entries and 1 MiB, which may come first: an entry with an author and a
/// reason takes about 150 bytes. A change that would exceed that is an error.
///
/// Cloning is cheap and shares the document.
#[derive(Clone, Debug)]
pub struct Control(Arc<Held>);

impl Control {
    /// Creates a document in this process alone, for services without Redis and for tests.
    ///
    /// Its entries end while a Tokio runtime is running in which one of its methods was called.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::in_memory_with(Arc::new(SystemClock::new()))
    }

    pub(crate) fn in_memory_with(clock: Arc<dyn Clock>) -> Self {
        let source = Box::new(Memory::default());
        Self::new(Held::new(source, clock, Secret::default()))
    }

    /// Creates a document that never changes.
    pub(crate) fn fixed(overrides: Arc<Overrides>) -> Self {
        let source = Box::new(Memory::default());
        let held = Held::new(source, Arc::new(SystemClock::new()), Secret::default());
        held.overrides.store(overrides);
        Self(held)
    }

    /// Returns the document that is held here.
    pub(crate) fn new(held: Arc<Held>) -> Self {
        held.follow();
        Self(held)
    }

    /// Gives a caller of a policy another quota, in place of that of the policy or its
    /// [`quota_by`](crate::Policy::quota_by). The caller keeps its bucket: used units stay used. A
    /// quota of another algorithm has another bucket, which starts full.
    ///
    /// The policy need not exist here, and not yet.
    pub fn override_quota(&self, policy: &str, key: impl Into<Key>, quota: Quota) -> Change {
        let caller = self.fingerprint(key);
        self.change(policy_name(policy).map(|policy| Action::Override {
            policy,
            caller,
            quota,
        }))
    }

    /// Removes the quota of a caller. Returns whether it had one of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be changed.
    pub async fn clear_override(
        &self,
        policy: &str,
        key: impl Into<Key>,
    ) -> Result<bool, ControlError> {
        let caller = self.fingerprint(key);
        self.remove(Subject::Override(policy.to_owned(), caller))
            .await
    }

    /// Denies all requests of a caller to which a policy applies, until an end: a
    /// [`SystemTime`](std::time::SystemTime), or a [`Duration`](std::time::Duration) from now.
    ///
    /// The policy may have any quota. For automatic bans, use a [`Penalty`](crate::Penalty).
    pub fn ban(&self, policy: &str, key: impl Into<Key>, until: impl Into<End>) -> Change {
        let caller = self.fingerprint(key);
        let action = policy_name(policy).map(|policy| Action::Ban { policy, caller });
        self.change(action).until(until)
    }

    /// Removes the ban of a caller. Returns whether it had one. Bans by a
    /// [`Penalty`](crate::Penalty) stay.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be changed.
    pub async fn unban(&self, policy: &str, key: impl Into<Key>) -> Result<bool, ControlError> {
        let caller = self.fingerprint(key);
        self.remove(Subject::Ban(policy.to_owned(), caller)).await
    }

    /// Sets whether a policy denies.
    pub fn set_mode(&self, policy: &str, mode: Mode) -> Change {
        self.change(policy_name(policy).map(|policy| Action::Mode { policy, mode }))
    }

    /// Returns a policy to the mode that code or file set. Returns whether it had another mode.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be changed.
    pub async fn clear_mode(&self, policy: &str) -> Result<bool, ControlError> {
        self.remove(Subject::Mode(policy.to_owned())).await
    }

    /// Adds an address or a CIDR range to the allow list of all layers, in addition to their
    /// [`Lists`](crate::Lists). A range that was on the deny list is not on it anymore.
    pub fn allow_ip(&self, range: &str) -> Change {
        self.list_ip(List::Allow, range)
    }

    /// Adds an address or a CIDR range to the deny list of all layers, in addition to their
    /// [`Lists`](crate::Lists). A range that was on the allow list is not on it anymore.
    pub fn deny_ip(&self, range: &str) -> Change {
        self.list_ip(List::Deny, range)
    }

    /// Adds a key of a policy to the allow list, in addition to the [`Lists`](crate::Lists) of layers
    /// and limiters: this policy does not limit the caller. A key that was on the deny list of the
    /// document is not on it anymore.
    pub fn allow_key(&self, policy: &str, key: impl Into<Key>) -> Change {
        self.list_key(List::Allow, policy, key.into())
    }

    /// Adds a key of a policy to the deny list, in addition to the [`Lists`](crate::Lists) of layers
    /// and limiters: requests that have this key for this policy are denied. A key that was on the
    /// allow list of the document is not on it anymore.
    pub fn deny_key(&self, policy: &str, key: impl Into<Key>) -> Change {
        self.list_key(List::Deny, policy, key.into())
    }

    /// Removes an address or a CIDR range from the lists of the document. Returns whether it was
    /// on one.
    ///
    /// # Errors
    ///
    /// Returns an error if it is neither, or if the document cannot be changed.
    pub async fn unlist_ip(&self, range: &str) -> Result<bool, ControlError> {
        let range = lists::range(range).map_err(ControlError::invalid)?;
        self.remove(Subject::Ip(range.to_string())).await
    }

    /// Removes a key of a policy from the lists of the document. Returns whether it was on one.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be changed.
    pub async fn unlist_key(
        &self,
        policy: &str,
        key: impl Into<Key>,
    ) -> Result<bool, ControlError> {
        let key = self.fingerprint(key);
        self.remove(Subject::Key(policy.to_owned(), key)).await
    }

    /// Removes all entries that this process knows. Returns whether there were any.
    ///
    /// Deleting the key in Redis does not do that: processes store again what they know.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be changed.
    pub async fn remove_all(&self) -> Result<bool, ControlError> {
        self.edit(Edit::RemoveAll).await
    }

    /// Stores again what this process knows, if Redis has lost changes. Returns whether it had.
    ///
    /// Each process that may write does that on its own within about a second, and any change does
    /// it at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be changed.
    pub async fn restore(&self) -> Result<bool, ControlError> {
        self.edit(Edit::Restore).await
    }

    /// Looks at the document now, and applies it if it is new: before the first request, or to
    /// see what another process changed a moment ago. Stores again what it lacks.
    ///
    /// # Errors
    ///
    /// Returns an error if the document cannot be reached, or if what is stored does not apply.
    pub async fn refresh(&self) -> Result<(), ControlError> {
        self.0.follow();
        self.0.refresh().await
    }

    /// Returns the entries that apply in this process, the oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        let document = self.0.document();
        let mut live: Vec<_> = document.live(self.0.now()).cloned().collect();
        live.sort_by_key(|entry| entry.created);
        live
    }

    /// Returns the version that applies in this process, since when, and what is wrong.
    pub fn status(&self) -> Status {
        let is_known = self.0.known_policies();
        self.0.state().status(self.0.now(), is_known)
    }

    /// Returns whether a layer or limiter with the other document follows this one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the document, for layers and limiters that follow it.
    pub(crate) const fn held(&self) -> &Arc<Held> {
        &self.0
    }

    /// Returns the name of a key in entries.
    pub fn fingerprint(&self, key: impl Into<Key>) -> Fingerprint {
        self.0.secret.fingerprint(key.into().as_bytes())
    }

    /// Returns an error if the store has another secret. `everyone`: what the store calls
    /// [`Key::everyone`].
    pub(crate) fn check_secret(&self, everyone: Fingerprint) -> Result<(), ConfigError> {
        match everyone == self.fingerprint(Key::everyone()) {
            true => Ok(()),
            false => Err(ConfigError::new(
                "control-secret",
                "the control document names callers with another secret than the store, so it would find none; use `RedisStore::control()` of a store with the same `secret(..)`",
            )),
        }
    }

    fn list_ip(&self, list: List, range: &str) -> Change {
        let range = lists::range(range).map_err(ControlError::invalid);
        self.change(range.map(|range| Action::ListIp {
            list,
            range: range.to_string(),
        }))
    }

    fn list_key(&self, list: List, policy: &str, key: Key) -> Change {
        let caller = self.fingerprint(key);
        let everyone = self.fingerprint(Key::everyone());
        self.change(match caller == everyone {
            true => Err(ControlError::invalid(lists::lists_every_caller())),
            false => policy_name(policy).map(|policy| Action::ListKey {
                list,
                policy,
                caller,
            }),
        })
    }

    fn change(&self, action: Result<Action, ControlError>) -> Change {
        Change::new(&self.0, action)
    }

    async fn remove(&self, subject: Subject) -> Result<bool, ControlError> {
        self.edit(Edit::Remove(subject)).await
    }

    async fn edit(&self, edit: Edit) -> Result<bool, ControlError> {
        self.0.follow();
        self.0.change(&edit).await
    }
}

/// Reads the text of a document, and writes it again.
#[cfg(fuzzing)]
pub(crate) fn write_again(text: &[u8]) -> Result<Vec<u8>, String> {
    let document = document::Document::parse(text);
    document.and_then(|document| document.text())
}

fn policy_name(name: &str) -> Result<String, ControlError> {
    match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(ControlError::invalid(invalid_policy_name(name))),
    }
}
