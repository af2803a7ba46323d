//! Whether the caller of a request is on one of the lists.

use std::{borrow::Cow, ops::ControlFlow};

use smallvec::SmallVec;

use super::{decide::Next, denied::Denial, settings::Settings};
use crate::{
    Decision, Key, List, RequestHead, key::KeyError, lists::LoadedLists, overrides::SeenOverrides,
    policy_name::Name,
};

/// An entry that decides.
pub(super) enum Found<'a> {
    /// Of the address, or of the keys of all policies that apply.
    Allowed,
    Exempt(SmallVec<[&'a Name; 2]>),
    /// The policy and its key. `None`: the address.
    Denied(Option<(&'a Name, Key)>),
}

impl Settings {
    /// Decides a request by the lists, and records it: if its address or all of its keys are allowed,
    /// if one is denied, or if one cannot be read. Otherwise returns the policies that are not asked.
    pub(super) fn listed(
        &self,
        lists: &LoadedLists<'_>,
        overrides: &SeenOverrides,
        head: &RequestHead<'_>,
    ) -> ControlFlow<Next, SmallVec<[&Name; 2]>> {
        if !self.applies(head) {
            return ControlFlow::Continue(SmallVec::new());
        }
        let (list, caller) = match self.find_listed(lists, overrides, head) {
            Ok(None) => return ControlFlow::Continue(SmallVec::new()),
            Ok(Some(Found::Exempt(policies))) => return ControlFlow::Continue(policies),
            Ok(Some(Found::Allowed)) => (List::Allow, None),
            Ok(Some(Found::Denied(caller))) => (List::Deny, caller),
            Err((policy, error)) => {
                let response = self.deny_without_key(policy, &error, head);
                return ControlFlow::Break(Next::Deny(response));
            }
        };
        let decision = Decision::by_list(list, 0);
        self.engine.recorder.decided(&decision);
        ControlFlow::Break(match list {
            List::Allow => Next::Forward(decision, None),
            List::Deny => {
                let denial = Denial::by_list(caller.as_ref().map(|(policy, _)| *policy));
                let key = caller.as_ref().map(|(_, key)| Cow::Borrowed(key));
                Next::Deny(self.deny(denial, &|_| key.clone(), head))
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
