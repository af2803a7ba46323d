//! Lists of a layer or limiter, together with those of a control document.

use std::{net::IpAddr, sync::Arc};

use arc_swap::Guard;

use super::{Overrides, PolicyOverrides};
use crate::{Fingerprint, Key, List, Lists, key::AddressReader, lists::Entries};

/// The lists of a layer or limiter at one moment, together with those of a control document.
pub(crate) struct LoadedLists<'a> {
    own: Option<Guard<Arc<Entries>>>,
    by_hand: Option<&'a Overrides>,
}

impl<'a> LoadedLists<'a> {
    /// Returns `None` without any lists.
    pub(crate) fn new(own: Option<&Lists>, by_hand: Option<&'a Overrides>) -> Option<Self> {
        let by_hand = by_hand.filter(|by_hand| by_hand.has_lists());
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

    /// Returns the list of a client's address, as `reader` has found it. That of a trusted proxy is on no
    /// allow list: all clients have it whose own address the proxy does not name in a form that can be
    /// read.
    pub(crate) fn find_address(&self, reader: &dyn AddressReader, address: IpAddr) -> Option<List> {
        let by_hand = self.by_hand.map(|by_hand| &by_hand.addresses);
        let all = self.own.iter().map(|own| &***own).chain(by_hand);
        let found = all.filter_map(|entries| entries.find_address(address));
        let counts = |list: &List| *list == List::Deny || !reader.is_trusted_proxy(address);
        stronger(found.filter(counts))
    }

    /// Returns whether keys of any policy are listed.
    pub(crate) fn has_keys(&self) -> bool {
        let has_own = self.own.as_ref().is_some_and(|own| own.has_keys());
        has_own || self.by_hand.is_some_and(|by_hand| by_hand.lists_callers)
    }

    /// Returns whether keys of this policy are listed.
    pub(crate) fn has_keys_of(&self, policy: &str) -> bool {
        let mut own = self.own.iter();
        own.any(|own| own.has_keys_of(policy)) || self.by_hand_of(policy).is_some()
    }

    /// Returns the entries of the document for callers of a policy, if one of them is on a list.
    fn by_hand_of(&self, policy: &str) -> Option<&PolicyOverrides> {
        let by_hand = self.by_hand?.policy(policy);
        by_hand.filter(|given| given.lists_callers)
    }

    /// Returns the list of a key of a policy. `fingerprint`: the store's name for the key.
    pub(crate) fn find_key(
        &self,
        policy: &str,
        key: &Key,
        fingerprint: impl FnOnce(&Key) -> Fingerprint,
    ) -> Option<List> {
        let own = self.own.as_ref().and_then(|own| own.find_key(policy, key));
        let by_hand = self.by_hand_of(policy);
        let by_hand = by_hand.and_then(|given| given.callers.get(&fingerprint(key))?.list);
        stronger(own.into_iter().chain(by_hand))
    }
}

/// An entry of an allow list has precedence over one of a deny list.
fn stronger(found: impl Iterator<Item = List>) -> Option<List> {
    found.min_by_key(|list| *list == List::Deny)
}
