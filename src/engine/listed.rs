//! The lists that the keys of a caller are on.

use smallvec::SmallVec;

use super::Engine;
use crate::{
    Key, List,
    key::KeyError,
    overrides::{LoadedLists, SeenOverrides},
    policy::Compiled,
    policy_name::Name,
};

/// Entries that decide.
#[derive(Debug)]
pub(crate) enum Listed<'a> {
    /// Of the address, or of the keys of all policies that apply.
    Allowed,
    /// The policies whose keys are allowed.
    Exempt(SmallVec<[&'a Name; 2]>),
    /// The policy and its key. `None`: the address.
    Denied(Option<(&'a Name, Key)>),
}

impl Listed<'_> {
    /// Returns the list that decides, if no policy is asked.
    pub(crate) const fn list(&self) -> Option<List> {
        match self {
            Self::Allowed => Some(List::Allow),
            Self::Denied(_) => Some(List::Deny),
            Self::Exempt(_) => None,
        }
    }

    /// Returns the policies that are not asked, if others are.
    pub(crate) fn exempt(&self) -> &[&Name] {
        match self {
            Self::Exempt(policies) => policies,
            _ => &[],
        }
    }
}

impl Engine {
    /// Looks up the keys of a caller. A denied key outweighs allowed ones. Otherwise a client that
    /// chooses one of its keys would choose its list.
    ///
    /// `policies`: each policy, and what reads the caller's key for it. `None`: it does not apply.
    ///
    /// # Errors
    ///
    /// Returns the policy and the error of an ambiguous key that would have to be looked up.
    pub(crate) fn find_listed_keys<'a, R: FnOnce() -> Result<Key, KeyError>>(
        &self,
        lists: &LoadedLists<'_>,
        overrides: &SeenOverrides,
        policies: impl Iterator<Item = (&'a Compiled, Option<R>)>,
    ) -> Result<Option<Listed<'a>>, (&'a Name, KeyError)> {
        if !lists.has_keys() {
            return Ok(None);
        }
        let mut exempt = SmallVec::new();
        let mut is_limited = false;
        for (policy, read) in policies {
            let Some(read) = read else {
                continue;
            };
            let name = &policy.name;
            // A policy that is off limits no caller, and a stolen key is denied nevertheless.
            let is_on = policy.is_on(overrides);
            let key = lists.has_keys_of(&name.text).then(read);
            let list = match key {
                None => None,
                Some(Ok(key)) => match self.store.find_listed(lists, name, &key) {
                    Some(List::Deny) => return Ok(Some(Listed::Denied(Some((name, key))))),
                    list => list,
                },
                Some(Err(error)) if is_on && error.is_ambiguous() => return Err((name, error)),
                Some(Err(_)) => None,
            };
            match list {
                Some(_) if is_on => exempt.push(name),
                Some(_) => {}
                None => is_limited |= is_on,
            }
        }
        Ok(match (exempt.is_empty(), is_limited) {
            (true, _) => None,
            (false, true) => Some(Listed::Exempt(exempt)),
            (false, false) => Some(Listed::Allowed),
        })
    }

    /// Returns the list that an operator sees a caller on, for each policy. A denied key counts for all
    /// of them. `keys`: those of the caller, in the order of the policies.
    pub(crate) fn lists_of_keys<'k>(
        &self,
        lists: Option<&LoadedLists<'_>>,
        keys: impl Iterator<Item = Option<&'k Key>>,
    ) -> Vec<Option<List>> {
        let list_of = |(policy, key): (&Compiled, Option<&Key>)| {
            self.store.find_listed(lists?, &policy.name, key?)
        };
        let mut found: Vec<_> = self.policies.iter().zip(keys).map(list_of).collect();
        if found.contains(&Some(List::Deny)) {
            found.fill(Some(List::Deny));
        }
        found
    }
}
