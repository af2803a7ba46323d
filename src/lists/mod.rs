//! Allow and deny lists: callers that are not limited, and callers that are denied.

mod entries;
mod file;
mod list;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex},
};

use arc_swap::{ArcSwap, Guard};

pub(crate) use self::entries::{Entries, lists_every_caller, range};
pub use self::list::List;
use crate::{
    ConfigError, Key,
    key::AddressReader,
    util::{self, lock::lock, text::plain_text},
};

/// The size of the largest file.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;

/// Callers that are not limited, and callers that are denied: by address, and by the key of a policy.
///
/// - A request from an **allowed address** is forwarded. No policy is asked, and none is charged.
/// - A request from a **denied address**, or with a **denied key**, is denied with 403 and without
///   `Retry-After`: see [`DenialReason::Listed`](crate::DenialReason::Listed).
/// - An **allowed key** exempts from the policy of its entry. The other policies are asked.
///
/// The first of these that applies decides: an allowed address is not denied for its key, and an
/// allowed key does not open a denied address. All other requests are limited as without lists.
///
/// ```
/// use tower_throttle::{List, Lists, Policy, RateLimitLayer, TokenBucket, key};
///
/// let lists = Lists::new()
///     .client_address(key::client_ip(["10.0.0.7"])) // the proxy in front
///     .allow_ips(["192.0.2.0/24", "2001:db8::/32"])?
///     .deny_ips(["198.51.100.0/24"])?
///     .allow_keys("api", ["status-page"])?;
/// let layer = RateLimitLayer::builder()
///     // Your authentication has checked the header.
///     .policy(Policy::new("api", TokenBucket::per_second(10)).key(key::header("x-api-key")))
///     .lists(lists.clone())
///     .build()?;
///
/// // Later, while requests are served:
/// lists.replace(Lists::new().deny_ips(["203.0.113.0/24"])?)?;
/// assert_eq!(lists.find_ip("203.0.113.9".parse()?), Some(List::Deny));
/// assert_eq!(lists.find_ip("198.51.100.9".parse()?), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones share their entries: [`replace`](Self::replace) changes all of them. The other methods
/// that add something return lists of their own.
///
/// **Addresses** come from the reader that you name: [`client_address`](Self::client_address). A
/// range counts for all addresses in it. IPv4-mapped IPv6 addresses are IPv4 addresses, on the
/// lists and in requests. An address is found by a binary search, without an allocation.
///
/// **Keys** are those of one policy: the same text may be another caller's key for another policy. A
/// layer or limiter with these lists must have each policy that an entry names;
/// [`for_policies`](Self::for_policies) splits lists that are for several. While keys of a policy are
/// listed, a request whose key is ambiguous is denied, as it cannot be looked up. Lists keep a secret
/// hash of each key.
///
/// **The dangers.**
/// - A key on the allow list that a client can send. Any client that knows it avoids that policy.
/// - A key on the deny list that others can send, such as a user name: they lock out its owner.
/// - An address that many clients share, behind a NAT or a proxy.
#[derive(Clone, Default)]
#[must_use]
pub struct Lists(Arc<Shared>);

/// What clones share.
#[derive(Default)]
struct Shared {
    entries: ArcSwap<Entries>,
    /// The policies of the layers and limiters that have these lists. Empty while none has them.
    policies: Mutex<BTreeSet<Box<str>>>,
}

impl Lists {
    /// Creates empty lists.
    pub fn new() -> Self {
        Self::default()
    }

    fn from_entries(entries: Entries) -> Self {
        Self(Arc::new(Shared {
            entries: ArcSwap::from_pointee(entries),
            ..Shared::default()
        }))
    }

    /// Returns lists of their own with a change.
    fn with(
        &self,
        change: impl FnOnce(&mut Entries) -> Result<(), ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut entries = Entries::clone(&self.load());
        change(&mut entries)?;
        Ok(Self::from_entries(entries))
    }

    /// Sets the reader of the client's address: [`key::client_ip`] behind proxies, [`key::peer`]
    /// without.
    ///
    /// If addresses are listed and a request has none, it is denied as by a policy with that key:
    /// usually with 500, as the application is misconfigured.
    ///
    /// Errors of the reader are reported when the layer is built, and by
    /// [`replace`](Self::replace). An allowed range within the proxies that the reader trusts is an
    /// error, too: a client behind them could claim an address in it.
    ///
    /// [`key::client_ip`]: crate::key::client_ip
    /// [`key::peer`]: crate::key::peer
    pub fn client_address(self, reader: impl AddressReader) -> Self {
        let mut entries = Entries::clone(&self.load());
        entries.reader = Some(Arc::new(reader));
        Self::from_entries(entries)
    }

    /// Adds addresses or CIDR ranges to the allow list.
    ///
    /// # Errors
    ///
    /// Returns an error for an entry that is neither, for a range with bits set beyond its prefix
    /// or with a prefix of 0, and for a range that is listed already, on either list. Ranges inside
    /// others are allowed.
    pub fn allow_ips<I>(self, networks: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.with(|entries| entries.add_networks(List::Allow, networks))
    }

    /// Adds addresses or CIDR ranges to the deny list.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allow_ips`](Self::allow_ips).
    pub fn deny_ips<I>(self, networks: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.with(|entries| entries.add_networks(List::Deny, networks))
    }

    /// Adds keys of a policy to the allow list.
    ///
    /// A key is what the policy's extractor makes: text for a header, and a number for
    /// `key::extension(|user: &User| user.id)` of a number.
    ///
    /// # Errors
    ///
    /// Returns an error for a key of the policy that is listed already, on either list, for
    /// [`Key::everyone`], and for a text that cannot be the name of a policy.
    pub fn allow_keys<I>(self, policy: &str, keys: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator,
        I::Item: Into<Key>,
    {
        self.with(|entries| entries.add_keys(List::Allow, policy, keys))
    }

    /// Adds keys of a policy to the deny list.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allow_keys`](Self::allow_keys).
    pub fn deny_keys<I>(self, policy: &str, keys: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator,
        I::Item: Into<Key>,
    {
        self.with(|entries| entries.add_keys(List::Deny, policy, keys))
    }

    /// Adds the entries of a text, one on each line.
    ///
    /// ```
    /// use tower_throttle::{Key, List, Lists};
    ///
    /// let lists = Lists::new().from_text("
    ///     allow 192.0.2.0/24           # the office
    ///     deny  2001:db8:7::/48
    ///     deny  key api stolen-api-key # a text that is a key of the policy `api`
    ///     deny  key plan number:42     # a number
    /// ")?;
    /// assert_eq!(lists.find_ip("192.0.2.9".parse()?), Some(List::Allow));
    /// assert_eq!(lists.find_key("plan", &Key::from(42)), Some(List::Deny));
    ///
    /// let error = Lists::new().from_text("deny 10.0.0.1/8").unwrap_err();
    /// assert!(error.to_string().starts_with(r#"line 1: listed range "10.0.0.1/8" has bits set"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error with the number of the line.
    pub fn from_text(self, text: &str) -> Result<Self, ConfigError> {
        self.with(|entries| file::read(entries, text.as_bytes(), None))
    }

    /// Adds the entries of a file of at most 64 MiB, in the form of [`from_text`](Self::from_text).
    /// It waits for the file system, so call it at the start, or where code may block.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, is larger, or is a pipe or a device. An error
    /// in a line has its number.
    pub fn from_file(self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let file = plain_text(&file);
        let text = util::file::read(path, MAX_FILE_BYTES + 1);
        let reason = match text {
            Ok(text) if text.len() as u64 <= MAX_FILE_BYTES => {
                return self.with(|entries| file::read(entries, &text, Some(&file)));
            }
            Ok(_) => "it has more than 64 MiB".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(ConfigError::new(
            "list-file",
            format!("cannot read {file} ({reason}); make it readable, or name another file"),
        ))
    }

    /// Returns lists of their own with the keys of these policies alone, and with all addresses: for
    /// one file of several layers and limiters, each of which has other policies.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Lists, Policy, TokenBucket};
    ///
    /// let all = Lists::new().from_text("deny key mail mallory \n deny key search crawler")?;
    /// let mail = Limiter::builder()
    ///     .policy(Policy::new("mail", TokenBucket::per_minute(5)))
    ///     .lists(all.for_policies(["mail"]));
    /// assert!(!mail.build()?.check_now("mallory")?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_policies<I>(&self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let names: Vec<_> = names.into_iter().collect();
        let mut entries = Entries::clone(&self.load());
        entries.retain_policies(&names.iter().map(AsRef::as_ref).collect());
        Self::from_entries(entries)
    }

    /// Returns the names of the policies whose keys are listed, in alphabetical order.
    #[must_use]
    pub fn policies(&self) -> Vec<String> {
        self.load().policies().map(str::to_owned).collect()
    }

    /// Replaces all entries by those of `new`, at once, in all clones and in the layers that have
    /// one. A request sees either all former entries or all new ones.
    ///
    /// The reader of addresses stays, unless `new` has one.
    ///
    /// # Errors
    ///
    /// Returns an error if addresses are listed and nothing reads the client's, if the reader has an
    /// error, if an allowed range is within its trusted proxies, or if keys are listed for a policy
    /// that no layer or limiter with these lists has. The former entries stay then.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "`new` is not to be used further"
    )]
    pub fn replace(&self, new: Self) -> Result<(), ConfigError> {
        let new = new.0.entries.load_full();
        let known = lock(&self.0.policies);
        if !known.is_empty() {
            check_policies(&new, |name| known.contains(name))?;
        }
        drop(known);
        let with_reader = |old: &Entries| {
            let mut entries = Entries::clone(&new);
            entries.reader = entries.reader.or_else(|| old.reader.clone());
            entries
        };
        with_reader(&self.load()).validate()?;
        self.0.entries.rcu(|old| with_reader(old));
        Ok(())
    }

    /// Checks that the lists can be applied to requests, as a layer does when it is built.
    ///
    /// # Errors
    ///
    /// Returns an error if addresses are listed and nothing reads the client's, if the reader has an
    /// error, or if an allowed range is within its trusted proxies.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.load().validate()
    }

    /// Returns the list that an address is on.
    pub fn find_ip(&self, address: IpAddr) -> Option<List> {
        self.load().find_address(address)
    }

    /// Returns the list that a key of a policy is on.
    pub fn find_key(&self, policy: &str, key: &Key) -> Option<List> {
        self.load().find_key(policy, key)
    }

    /// Checks that each listed key is one of these policies, and records them as those of a layer or
    /// limiter with these lists.
    pub(crate) fn add_policies<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<(), ConfigError> {
        let names: BTreeSet<Box<str>> = names.map(Box::from).collect();
        check_policies(&self.load(), |name| names.contains(name))?;
        lock(&self.0.policies).extend(names);
        Ok(())
    }

    /// Returns the entries as they are now.
    pub(crate) fn load(&self) -> Guard<Arc<Entries>> {
        self.0.entries.load()
    }
}

impl fmt::Debug for Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

/// Returns the error for the first policy whose keys are listed and that is not known.
fn check_policies(entries: &Entries, is_known: impl Fn(&str) -> bool) -> Result<(), ConfigError> {
    let unknown = entries.policies().find(|name| !is_known(name));
    unknown.map_or(Ok(()), |name| {
        let message = format!(
            "keys are listed for {name:?}, and no policy of that name here has a key; correct the name, or choose the entries with `Lists::for_policies(..)`"
        );
        Err(ConfigError::new("list-policy", message).with_subject(name.to_owned()))
    })
}
