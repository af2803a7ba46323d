//! Lists of a control document, and those of a layer or limiter beside them.

#[cfg(feature = "http")]
use std::net::IpAddr;
use std::sync::Arc;
#[cfg(feature = "control")]
use std::{collections::HashMap, fmt};

use arc_swap::Guard;

use super::{Entries, List, Lists};
#[cfg(feature = "control")]
use crate::Fingerprint;
use crate::Key;
#[cfg(feature = "http")]
use crate::key::AddressReader;

/// The lists of a control document.
#[cfg(feature = "control")]
#[derive(Clone, Default)]
pub(crate) struct ListsByHand {
    pub(crate) addresses: Entries,
    pub(crate) keys: HashMap<Fingerprint, List>,
}

/// All lists of a layer or limiter: those that it was built with, and those of a control document.
#[derive(Clone, Debug)]
pub(crate) struct AllLists {
    pub(crate) own: Option<Lists>,
    #[cfg(feature = "control")]
    pub(crate) by_hand: Option<Arc<ListsByHand>>,
}

/// The same at one moment.
pub(crate) struct LoadedLists<'a> {
    own: Option<Guard<Arc<Entries>>>,
    #[cfg_attr(
        not(feature = "control"),
        expect(dead_code, reason = "there are no others")
    )]
    all: &'a AllLists,
}

impl AllLists {
    /// Returns whether the document lists addresses, and nothing reads those of clients here.
    #[cfg(all(feature = "http", feature = "control"))]
    pub(crate) fn ignores_addresses(&self) -> bool {
        let by_hand = self.by_hand.as_ref();
        let is_listed = by_hand.is_some_and(|by_hand| by_hand.addresses.has_networks());
        is_listed && self.load().address_reader().is_none()
    }

    pub(crate) fn load(&self) -> LoadedLists<'_> {
        LoadedLists {
            own: self.own.as_ref().map(Lists::load),
            all: self,
        }
    }
}

impl LoadedLists<'_> {
    /// Returns the reader of client addresses, if an address is listed.
    #[cfg(feature = "http")]
    pub(crate) fn address_reader(&self) -> Option<&dyn AddressReader> {
        let own = self.own.as_ref()?;
        let is_listed = own.has_networks();
        #[cfg(feature = "control")]
        let is_listed = {
            let by_hand = self.all.by_hand.as_ref();
            is_listed || by_hand.is_some_and(|by_hand| by_hand.addresses.has_networks())
        };
        own.reader.as_deref().filter(|_| is_listed)
    }

    #[cfg(feature = "http")]
    pub(crate) fn find_address(&self, address: IpAddr) -> Option<List> {
        let own = self.own.as_ref();
        let own = own.and_then(|own| own.find_address(address));
        #[cfg(feature = "control")]
        let own = {
            let by_hand = self.all.by_hand.as_ref();
            let by_hand = by_hand.and_then(|by_hand| by_hand.addresses.find_address(address));
            stronger(own, by_hand)
        };
        own
    }

    #[cfg(feature = "http")]
    pub(crate) fn has_keys(&self) -> bool {
        let has_own = self.own.as_ref().is_some_and(|own| own.has_keys());
        #[cfg(feature = "control")]
        let has_own = has_own || self.keys_by_hand().is_some();
        has_own
    }

    /// Returns the list of a key. `fingerprint`: what the store calls the key.
    pub(crate) fn find_key(
        &self,
        key: &Key,
        #[cfg(feature = "control")] fingerprint: impl FnOnce(&Key) -> Fingerprint,
    ) -> Option<List> {
        let own = self.own.as_ref().and_then(|own| own.find_key(key));
        #[cfg(feature = "control")]
        let own = {
            let by_hand = self.keys_by_hand();
            let by_hand = by_hand.and_then(|keys| keys.get(&fingerprint(key)));
            stronger(own, by_hand.copied())
        };
        own
    }

    #[cfg(feature = "control")]
    fn keys_by_hand(&self) -> Option<&HashMap<Fingerprint, List>> {
        let keys = &self.all.by_hand.as_ref()?.keys;
        Some(keys).filter(|keys| !keys.is_empty())
    }
}

/// An entry of an allow list counts more than one of a deny list.
#[cfg(feature = "control")]
fn stronger(one: Option<List>, other: Option<List>) -> Option<List> {
    match (one, other) {
        (Some(List::Allow), _) | (_, None) => one,
        _ => other,
    }
}

#[cfg(feature = "control")]
impl fmt::Debug for ListsByHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (networks, _) = self.addresses.counts();
        f.debug_struct("ListsByHand")
            .field("networks", &networks)
            .field("keys", &self.keys.len())
            .finish()
    }
}
