//! [`Entries`]: what is on the lists at one moment.

#[cfg(feature = "http")]
use std::sync::Arc;
use std::{
    collections::{BTreeMap, HashMap},
    iter,
    net::IpAddr,
};

use super::{
    List,
    segments::{Halves, Segments},
};
#[cfg(feature = "http")]
use crate::key::AddressReader;
use crate::{
    ConfigError, Key,
    util::{hash::SecretHasher, network::Network},
};

/// What is on the lists at one moment.
#[derive(Clone)]
pub(crate) struct Entries {
    networks: BTreeMap<Network, List>,
    /// Made of the networks.
    v4: Segments<u32>,
    v6: Segments<Halves>,
    /// By a secret hash of the key: keys may be credentials.
    keys: HashMap<(u64, u64), List>,
    hasher: SecretHasher,
    #[cfg(feature = "http")]
    pub(super) reader: Option<Arc<dyn AddressReader>>,
}

impl Default for Entries {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads an address or a CIDR range that can be on a list.
pub(crate) fn range(text: &str) -> Result<Network, ConfigError> {
    let written = || text.to_owned();
    let network = Network::parse(text).ok_or_else(|| ConfigError::ListEntry { text: written() })?;
    if network.prefix == 0 {
        return Err(ConfigError::ListsEveryAddress { text: written() });
    }
    let range = network.without_host_bits();
    match network == range {
        true => Ok(range),
        false => Err(ConfigError::ListHostBits {
            text: written(),
            range: range.to_string(),
        }),
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
            #[cfg(feature = "http")]
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
            Some(other) => Err(ConfigError::ListedTwice {
                text: Some(text.to_owned()),
                is_on_both: other != list,
            }),
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
            return Err(ConfigError::ListsEveryCaller);
        }
        match self.keys.insert(self.hash(key), list) {
            None => Ok(()),
            Some(other) => Err(ConfigError::ListedTwice {
                text: None,
                is_on_both: other != list,
            }),
        }
    }

    /// Prepares the networks for lookups.
    pub(super) fn index(&mut self) {
        let ranges = |is_v4: bool| {
            let networks = self.networks.iter();
            let networks = networks.filter(move |(network, _)| network.address.is_ipv4() == is_v4);
            networks.map(|(network, list)| {
                let (first, last) = network.range();
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

    #[cfg(any(feature = "http", feature = "control"))]
    pub(super) fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    #[cfg(feature = "http")]
    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns the list that an address is on.
    #[inline]
    pub(crate) fn find_address(&self, address: IpAddr) -> Option<List> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.v4.find(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.find(v6.to_bits().into()),
        }
    }

    /// Returns the list that a key is on.
    #[inline]
    pub(crate) fn find_key(&self, key: &Key) -> Option<List> {
        self.keys.get(&self.hash(key)).copied()
    }

    /// Checks that the lists can be applied to requests.
    #[cfg(feature = "http")]
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let Some(reader) = &self.reader else {
            return match self.has_networks() {
                true => Err(ConfigError::NoAddressReader),
                false => Ok(()),
            };
        };
        reader.validate()?;
        let mut networks = self.networks.iter();
        let trusted = networks.find(|(network, list)| {
            let mut ends = network.ends().into_iter();
            **list == List::Allow && ends.all(|end| reader.is_trusted_proxy(end))
        });
        match trusted {
            Some((network, _)) => Err(ConfigError::AllowsTrustedProxies {
                text: network.written(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the reader of addresses, if some are listed.
    #[cfg(feature = "config")]
    pub(crate) fn address_reader(&self) -> Option<&dyn AddressReader> {
        self.reader.as_deref().filter(|_| self.has_networks())
    }
}
