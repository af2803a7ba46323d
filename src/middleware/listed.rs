//! Whether the caller of a request is on one of the lists.

use std::{borrow::Cow, ops::ControlFlow};

use smallvec::SmallVec;

use super::{decide::Next, denied::Denial, settings::Settings};
use crate::{
    Decision, List, RequestHead,
    engine::Listed,
    key::KeyError,
    overrides::{LoadedLists, SeenOverrides},
    policy_name::Name,
};

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
            Ok(Some(Listed::Exempt(policies))) => return ControlFlow::Continue(policies),
            Ok(Some(Listed::Allowed)) => (List::Allow, None),
            Ok(Some(Listed::Denied(caller))) => (List::Deny, caller),
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

    /// Looks a request up on the lists: first its address, then the keys of its policies.
    pub(super) fn find_listed(
        &self,
        lists: &LoadedLists<'_>,
        overrides: &SeenOverrides,
        head: &RequestHead<'_>,
    ) -> Result<Option<Listed<'_>>, (Option<&Name>, KeyError)> {
        if let Some(reader) = lists.address_reader() {
            let address = reader.address(head).map_err(|error| (None, error))?;
            match lists.find_address(reader, address) {
                Some(List::Allow) => return Ok(Some(Listed::Allowed)),
                Some(List::Deny) => return Ok(Some(Listed::Denied(None))),
                None => {}
            }
        }
        let policies = self.rules().map(|rule| {
            let reader = &rule.readers.key.0;
            let applies = rule.readers.applies(head);
            (rule.policy, applies.then_some(move || reader.extract(head)))
        });
        let found = self.engine.find_listed_keys(lists, overrides, policies);
        found.map_err(|(policy, error)| (Some(policy), error))
    }
}
