//! [`Entries`]: the content of the lists at one moment.
//!
//! An entry is one address range or one key.

use std::sync::Arc;
use std::{
    collections::{BTreeMap, HashMap},
    iter,
    net::IpAddr,
};

use ipnet::IpNet;

use super::{List, segments::Segments};
use crate::key::AddressReader;
use crate::{
    ConfigError, Key,
    util::{hash::SecretHasher, network},
};

/// The content of the lists at one moment.
#[derive(Clone)]
pub(crate) struct Entries {
    networks: BTreeMap<IpNet, List>,
    /// Made of the networks.
    v4: Segments<u32>,
    v6: Segments<u128>,
    /// By a secret hash of the key: keys may be credentials.
    keys: HashMap<(u64, u64), List>,
    hasher: SecretHasher,
    pub(super) reader: Option<Arc<dyn AddressReader>>,
}

impl Default for Entries {
    fn default() -> Self {
        Self::new()
    }
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

pub(super) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Entries {
    pub(crate) fn new() -> Self {
        Self {
            networks: BTreeMap::new(),
            v4: Segments::new(iter::empty()),
            v6: Segments::new(iter::empty()),
            keys: HashMap::new(),
            hasher: SecretHasher::new(),
            reader: None,
        }
    }

    /// Adds addresses or CIDR ranges to a list.
    pub(crate) fn add_networks<T: AsRef<str>>(
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
    pub(super) fn add_network(&mut self, list: List, text: &str) -> Result<(), ConfigError> {
        match self.networks.insert(range(text)?, list) {
            None => Ok(()),
            Some(other) => {
                let error = listed_twice(&format!("{text:?}"), other != list);
                Err(error.with_subject(text.to_owned()))
            }
        }
    }

    /// Adds keys to a list.
    pub(super) fn add_keys<T: Into<Key>>(
        &mut self,
        list: List,
        keys: impl IntoIterator<Item = T>,
    ) -> Result<(), ConfigError> {
        let mut keys = keys.into_iter();
        keys.try_for_each(|key| self.add_key(list, &key.into()))
    }

    /// Adds a key to a list.
    pub(super) fn add_key(&mut self, list: List, key: &Key) -> Result<(), ConfigError> {
        if *key == Key::everyone() {
            return Err(lists_every_caller());
        }
        match self.keys.insert(self.hash(key), list) {
            None => Ok(()),
            Some(other) => Err(listed_twice("a key", other != list)),
        }
    }

    /// Prepares the networks for lookups.
    pub(super) fn index(&mut self) {
        let ranges = |is_v4: bool| {
            let networks = self.networks.iter();
            let networks = networks.filter(move |(network, _)| network.addr().is_ipv4() == is_v4);
            networks.map(|(network, list)| {
                let [first, last] = [network.network(), network.broadcast()].map(bits);
                (first, last, *list)
            })
        };
        (self.v4, self.v6) = (Segments::new(ranges(true)), Segments::new(ranges(false)));
    }

    fn hash(&self, key: &Key) -> (u64, u64) {
        self.hasher.hash_128((0, 0), 0, key.as_bytes())
    }

    /// Returns how many networks and keys are listed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.networks.len(), self.keys.len())
    }

    pub(super) fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns the list that an address is on.
    pub(crate) fn find_address(&self, address: IpAddr) -> Option<List> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.v4.find(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.find(v6.to_bits()),
        }
    }

    /// Returns the list that a key is on.
    pub(crate) fn find_key(&self, key: &Key) -> Option<List> {
        self.keys.get(&self.hash(key)).copied()
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
