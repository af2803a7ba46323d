//! [`Entries`]: the content of the lists at one moment.
//!
//! An entry is one address range, or one key of one policy.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;

use super::List;
use crate::{
    ConfigError, Key,
    key::AddressReader,
    policy_name::{invalid_policy_name, is_name},
    util::{hash::SecretHasher, network},
};

/// The content of the lists at one moment.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    networks: BTreeMap<IpNet, List>,
    /// Made of the networks. One list per family, because addresses of 4 bytes are found in a third of
    /// the time: see the rows "lists: an IPv4 address" and "an IPv6 address".
    v4: Segments<u32>,
    v6: Segments<u128>,
    /// The keys of each policy, by a secret hash: keys may be credentials.
    keys: BTreeMap<Box<str>, HashMap<(u64, u64), List>>,
    hasher: SecretHasher,
    pub(crate) reader: Option<Arc<dyn AddressReader>>,
}

/// Reads an address or a CIDR range that can be on a list.
pub(crate) fn range(text: &str) -> Result<IpNet, ConfigError> {
    let Some(network) = network::parse(text) else {
        let message = format!(
            "listed address {text:?} is no address and no CIDR range; write it as \"198.51.100.7\" or \"198.51.100.0/24\""
        );
        return Err(ConfigError::new("list-entry", message).with_subject(text.to_owned()));
    };
    if network.prefix_len() == 0 {
        let message = format!(
            "listed range {text:?} matches every address; list smaller ranges, or choose requests with `when(..)`"
        );
        return Err(ConfigError::new("lists-every-address", message).with_subject(text.to_owned()));
    }
    let range = network.trunc();
    if network != range {
        let written = range.to_string();
        let message = format!(
            "listed range {text:?} has bits set beyond its prefix; write {written:?} for the range, or the address alone"
        );
        return Err(ConfigError::new("list-host-bits", message).with_subject(text.to_owned()));
    }
    Ok(range)
}

pub(crate) fn lists_every_caller() -> ConfigError {
    ConfigError::new(
        "lists-every-caller",
        "the key of all callers is listed; list keys of single callers",
    )
}

/// Returns the error for an entry that is on a list already. `entry` must not name a key, which may
/// be a credential.
fn listed_twice(entry: &str, is_on_both: bool) -> ConfigError {
    let on = match is_on_both {
        true => "on the allow list and on the deny list",
        false => "listed twice",
    };
    ConfigError::new("listed-twice", format!("{entry} is {on}; remove one"))
}

/// The first address of each run of addresses that are on one list or on none, in order. A lookup is
/// one binary search, however the networks are nested.
type Segments<A> = Vec<(A, Option<List>)>;

fn find<A: Ord>(segments: &Segments<A>, address: &A) -> Option<List> {
    let started = segments.partition_point(|(first, _)| first <= address);
    segments.get(started.checked_sub(1)?)?.1
}

pub(super) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lists")
            .field("networks", &self.networks.len())
            .field("keys", &self.keys.values().map(HashMap::len).sum::<usize>())
            .finish_non_exhaustive()
    }
}

impl Entries {
    /// Adds addresses or CIDR ranges to a list.
    pub(super) fn add_networks<T: AsRef<str>>(
        &mut self,
        list: List,
        texts: impl IntoIterator<Item = T>,
    ) -> Result<(), ConfigError> {
        for text in texts {
            self.add_network(list, text.as_ref())?;
        }
        self.index();
        Ok(())
    }

    /// Adds an address or a CIDR range to a list. It is found after [`index`](Self::index).
    pub(crate) fn add_network(&mut self, list: List, text: &str) -> Result<(), ConfigError> {
        match self.networks.insert(range(text)?, list) {
            None => Ok(()),
            Some(other) => {
                let error = listed_twice(&format!("{text:?}"), other != list);
                Err(error.with_subject(text.to_owned()))
            }
        }
    }

    /// Adds keys of a policy to a list.
    pub(super) fn add_keys<T: Into<Key>>(
        &mut self,
        list: List,
        policy: &str,
        keys: impl IntoIterator<Item = T>,
    ) -> Result<(), ConfigError> {
        let mut keys = keys.into_iter();
        keys.try_for_each(|key| self.add_key(list, policy, &key.into()))
    }

    /// Adds a key of a policy to a list.
    pub(super) fn add_key(
        &mut self,
        list: List,
        policy: &str,
        key: &Key,
    ) -> Result<(), ConfigError> {
        if !is_name(policy) {
            return Err(invalid_policy_name(policy));
        }
        if *key == Key::everyone() {
            return Err(lists_every_caller());
        }
        let hash = self.hash(key);
        let keys = self.keys.entry(policy.into()).or_default();
        match keys.insert(hash, list) {
            None => Ok(()),
            Some(other) => Err(listed_twice("a key", other != list)),
        }
    }

    /// Drops the keys of other policies.
    pub(super) fn retain_policies(&mut self, names: &BTreeSet<&str>) {
        self.keys.retain(|policy, _| names.contains(&**policy));
    }

    /// Returns the policies whose keys are listed.
    pub(super) fn policies(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(|policy| &**policy)
    }

    /// Prepares the networks for lookups. An address in networks of both lists is on the allow list.
    pub(crate) fn index(&mut self) {
        // How many networks of each list begin at an address, less those that end before it.
        let mut steps: BTreeMap<(bool, u128), (i32, i32)> = BTreeMap::new();
        for (network, list) in &self.networks {
            let [first, last] = [network.network(), network.broadcast()].map(bits);
            // No address is after the last one.
            for (bits, step) in [(Some(first), 1), (last.checked_add(1), -1)] {
                if let Some(bits) = bits {
                    let is_v6 = network.addr().is_ipv6();
                    let (allow, deny) = steps.entry((is_v6, bits)).or_default();
                    match list {
                        List::Allow => *allow += step,
                        List::Deny => *deny += step,
                    }
                }
            }
        }
        (self.v4, self.v6) = (Vec::new(), Vec::new());
        let mut open = (0, 0);
        for ((is_v6, first), (allow, deny)) in steps {
            open = (open.0 + allow, open.1 + deny);
            let list = match open {
                (0, 0) => None,
                (0, _) => Some(List::Deny),
                _ => Some(List::Allow),
            };
            match (is_v6, u32::try_from(first)) {
                (true, _) => self.v6.push((first, list)),
                (false, Ok(first)) => self.v4.push((first, list)),
                (false, Err(_)) => {}
            }
        }
        self.v4.dedup_by_key(|(_, list)| *list);
        self.v6.dedup_by_key(|(_, list)| *list);
    }

    fn hash(&self, key: &Key) -> (u64, u64) {
        self.hasher.hash_128((0, 0), 0, key.as_bytes())
    }

    pub(crate) fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    pub(crate) fn has_keys_of(&self, policy: &str) -> bool {
        self.keys.contains_key(policy)
    }

    /// Returns the list that an address is on.
    pub(crate) fn find_address(&self, address: IpAddr) -> Option<List> {
        match address.to_canonical() {
            IpAddr::V4(v4) => find(&self.v4, &v4.to_bits()),
            IpAddr::V6(v6) => find(&self.v6, &v6.to_bits()),
        }
    }

    /// Returns the list that a key of a policy is on.
    pub(crate) fn find_key(&self, policy: &str, key: &Key) -> Option<List> {
        let keys = self.keys.get(policy)?;
        keys.get(&self.hash(key)).copied()
    }

    /// Checks that the lists can be applied to requests.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let Some(reader) = &self.reader else {
            return match self.has_networks() {
                true => Err(ConfigError::new(
                    "no-address-reader",
                    "addresses are listed, and nothing reads the client's; name a reader with `Lists::client_address(key::client_ip(..))`",
                )),
                false => Ok(()),
            };
        };
        reader.validate()?;
        let mut networks = self.networks.iter();
        let trusted = networks.find(|(network, list)| {
            let mut ends = [network.network(), network.broadcast()].into_iter();
            **list == List::Allow && ends.all(|end| reader.is_trusted_proxy(end))
        });
        match trusted {
            Some((network, _)) => {
                let text = network::written(network);
                let message = format!(
                    "allowed range {text:?} is within the trusted proxies, so a client behind them could claim an address in it; allow ranges of clients, or trust the addresses of your proxies alone"
                );
                Err(ConfigError::new("allows-trusted-proxies", message).with_subject(text))
            }
            None => Ok(()),
        }
    }
}
