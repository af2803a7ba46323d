//! Lists of a control document, together with those of a layer or limiter.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use arc_swap::Guard;

use super::{Entries, List, Lists};
use crate::{Fingerprint, Key, key::AddressReader};

/// The lists of a control document.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListsByHand {
    pub(crate) addresses: Entries,
    pub(crate) keys: HashMap<Fingerprint, List>,
}

/// The lists of a layer or limiter at one moment, together with those of a control document.
pub(crate) struct LoadedLists<'a> {
    own: Option<Guard<Arc<Entries>>>,
    by_hand: Option<&'a ListsByHand>,
}

impl ListsByHand {
    pub(crate) fn is_empty(&self) -> bool {
        !self.addresses.has_networks() && self.keys.is_empty()
    }
}

impl<'a> LoadedLists<'a> {
    /// Returns `None` without any lists.
    pub(crate) fn new(own: Option<&Lists>, by_hand: Option<&'a ListsByHand>) -> Option<Self> {
        let is_any = own.is_some() || by_hand.is_some();
        is_any.then(|| Self {
            own: own.map(Lists::load),
            by_hand,
        })
    }

    /// Returns the reader of client addresses, if an address is listed.
    pub(crate) fn address_reader(&self) -> Option<&dyn AddressReader> {
        let own = self.own.as_ref()?;
        let is_listed = own.has_networks() || self.lists_addresses_by_hand();
        own.reader.as_deref().filter(|_| is_listed)
    }

    /// Returns whether the document lists addresses, and nothing reads those of clients here.
    pub(crate) fn ignores_addresses(&self) -> bool {
        self.lists_addresses_by_hand() && self.address_reader().is_none()
    }

    fn lists_addresses_by_hand(&self) -> bool {
        self.by_hand
            .is_some_and(|by_hand| by_hand.addresses.has_networks())
    }

    pub(crate) fn find_address(&self, address: IpAddr) -> Option<List> {
        let by_hand = self.by_hand.map(|by_hand| &by_hand.addresses);
        let all = self.own.iter().map(|own| &***own).chain(by_hand);
        stronger(all.filter_map(|entries| entries.find_address(address)))
    }

    pub(crate) fn has_keys(&self) -> bool {
        let has_own = self.own.as_ref().is_some_and(|own| own.has_keys());
        has_own || self.by_hand.is_some_and(|by_hand| !by_hand.keys.is_empty())
    }

    /// Returns the list of a key. `fingerprint`: the store's name for the key.
    pub(crate) fn find_key(
        &self,
        key: &Key,
        fingerprint: impl FnOnce(&Key) -> Fingerprint,
    ) -> Option<List> {
        let own = self.own.as_ref().and_then(|own| own.find_key(key));
        let by_hand = self.by_hand.filter(|by_hand| !by_hand.keys.is_empty());
        let by_hand = by_hand.and_then(|by_hand| by_hand.keys.get(&fingerprint(key)));
        stronger(own.into_iter().chain(by_hand.copied()))
    }
}

/// An entry of an allow list has precedence over one of a deny list.
fn stronger(found: impl Iterator<Item = List>) -> Option<List> {
    found.min_by_key(|list| *list == List::Deny)
}
