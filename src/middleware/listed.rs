//! Whether the caller of a request is on one of the lists.

use bytes::Bytes;
use http::Response;
use smallvec::SmallVec;

use super::{denied::Denial, settings::Settings};
use crate::{
    Decision, Key, List, RequestHead, key::KeyError, lists::LoadedLists, overrides::SeenOverrides,
    policy_name::Name,
};

/// What the lists decide.
pub(super) enum Listed<'a> {
    Allowed(Decision),
    /// These policies are not asked. The others are.
    Exempt(SmallVec<[&'a Name; 2]>),
    /// By the deny list, or because the address cannot be read or a key is ambiguous.
    Denied(Response<Bytes>),
}

/// An entry that decides.
pub(super) enum Found<'a> {
    /// Of the address, or of the keys of all policies that apply.
    Allowed,
    Exempt(SmallVec<[&'a Name; 2]>),
    /// The policy and its key. `None`: the address.
    Denied(Option<(&'a Name, Key)>),
}

impl Settings {
    /// Decides a request by the lists, and records it. `None` if its caller is on neither.
    #[inline(never)]
    pub(super) fn listed(
        &self,
        lists: &LoadedLists<'_>,
        overrides: &SeenOverrides,
        head: &RequestHead<'_>,
    ) -> Option<Listed<'_>> {
        if !self.applies(head) {
            return None;
        }
        let (list, caller) = match self.find_listed(lists, overrides, head) {
            Ok(None) => return None,
            Ok(Some(Found::Exempt(policies))) => return Some(Listed::Exempt(policies)),
            Ok(Some(Found::Allowed)) => (List::Allow, None),
            Ok(Some(Found::Denied(caller))) => (List::Deny, caller),
            Err((policy, error)) => {
                return Some(Listed::Denied(self.deny_without_key(policy, &error, head)));
            }
        };
        let decision = Decision::by_list(list, 0);
        self.engine.recorder.decided(&decision);
        Some(match list {
            List::Allow => Listed::Allowed(decision),
            List::Deny => {
                let denial = Denial::by_list(caller.as_ref().map(|(policy, _)| &*policy.text));
                let key = caller.as_ref().map(|(_, key)| key);
                Listed::Denied(self.deny(denial, &|_| key, head))
            }
        })
    }

    /// Looks a request up on the lists: first its address, then the keys of its policies. A denied
    /// key outweighs allowed ones. Otherwise a client that chooses one of its keys would choose its
    /// list.
    pub(super) fn find_listed(
        &self,
        lists: &LoadedLists<'_>,
        overrides: &SeenOverrides,
        head: &RequestHead<'_>,
    ) -> Result<Option<Found<'_>>, (Option<&Name>, KeyError)> {
        if let Some(reader) = lists.address_reader() {
            let address = reader.address(head).map_err(|error| (None, error))?;
            match lists.find_address(address) {
                Some(List::Allow) => return Ok(Some(Found::Allowed)),
                Some(List::Deny) => return Ok(Some(Found::Denied(None))),
                None => {}
            }
        }
        if !lists.has_keys() {
            return Ok(None);
        }
        let mut exempt = SmallVec::new();
        let mut is_limited = false;
        for rule in self.rules() {
            let name = &rule.policy.name;
            // A policy that is off limits no caller, and a stolen key is denied nevertheless.
            let is_on = rule.policy.is_on(overrides);
            match rule.readers.own_key(head) {
                None => {}
                Some(Ok(key)) => match self.engine.store.find_listed(lists, &key) {
                    Some(List::Deny) => return Ok(Some(Found::Denied(Some((name, key))))),
                    Some(List::Allow) if is_on => exempt.push(name),
                    Some(List::Allow) => {}
                    None => is_limited |= is_on,
                },
                Some(Err(error)) if is_on && error.is_ambiguous() => {
                    return Err((Some(name), error));
                }
                Some(Err(_)) => is_limited |= is_on,
            }
        }
        Ok(match (exempt.is_empty(), is_limited) {
            (true, _) => None,
            (false, true) => Some(Found::Exempt(exempt)),
            (false, false) => Some(Found::Allowed),
        })
    }
}
