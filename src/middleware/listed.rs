//! Whether the caller of a request is on one of the lists.

use bytes::Bytes;
use http::Response;

use super::{denied::Denial, settings::Settings};
use crate::{
    Decision, Key, List, RequestHead,
    key::KeyError,
    lists::{AllLists, LoadedLists},
    policy_name::Name,
};

/// What the lists decide.
pub(super) enum Listed {
    Allowed(Decision),
    Denied(Response<Bytes>),
    /// Addresses are listed, and the request has none.
    Unknown(KeyError),
}

/// A list, and the policy and the key that are on it. No key: the address is.
type Found<'a> = (List, Option<(&'a Name, Key)>);

impl Settings {
    /// Decides a request by the lists, and records it. `None` if its caller is on neither.
    #[inline(never)]
    pub(super) fn listed(&self, lists: &AllLists, head: &RequestHead<'_>) -> Option<Listed> {
        if self.plan.when.as_ref().is_some_and(|when| !(when.0)(head)) {
            return None;
        }
        let (list, caller) = match self.find_listed(&lists.load(), head) {
            Ok(found) => found?,
            Err(error) => return Some(Listed::Unknown(error)),
        };
        let decision = Decision::by_list(list, 0);
        self.recorder.decided(&decision);
        Some(match list {
            List::Allow => Listed::Allowed(decision),
            List::Deny => {
                let denial = Denial::by_list(caller.as_ref().map(|(policy, _)| &*policy.text));
                let key = caller.as_ref().map(|(_, key)| key);
                Listed::Denied(self.deny(denial, &|_| key, head))
            }
        })
    }

    /// Finds the list of a request's caller. An allowed address or key counts more than all that
    /// are denied.
    fn find_listed(
        &self,
        lists: &LoadedLists<'_>,
        head: &RequestHead<'_>,
    ) -> Result<Option<Found<'_>>, KeyError> {
        let mut denied = None;
        if let Some(reader) = lists.address_reader() {
            match lists.find_address(reader.address(head)?) {
                Some(List::Allow) => return Ok(Some((List::Allow, None))),
                Some(List::Deny) => denied = Some((List::Deny, None)),
                None => {}
            }
        }
        if !lists.has_keys() {
            return Ok(denied);
        }
        // A policy that is off has keys that are listed, too.
        for rule in self.plan.rules.iter().chain(&self.plan.off) {
            let Some(key) = rule.own_key(head) else {
                continue;
            };
            match self.store.find_listed(lists, &key) {
                Some(List::Allow) => return Ok(Some((List::Allow, None))),
                Some(List::Deny) if denied.is_none() => {
                    denied = Some((List::Deny, Some((&rule.base.name, key))));
                }
                _ => {}
            }
        }
        Ok(denied)
    }
}
