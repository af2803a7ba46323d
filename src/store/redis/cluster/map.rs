//! Which node is asked about which slot.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::slots::{Address, MOST_NODES, Range, SLOTS};
use crate::store::redis::node::Node;

const NOBODY: u16 = u16::MAX;

/// A node that is known by an address.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) address: Address,
    pub(super) node: Arc<Node>,
}

#[derive(Debug)]
pub(super) struct Map {
    /// For each slot the place of its owner among the members.
    owners: Vec<u16>,
    members: Vec<Member>,
}

impl Map {
    pub(super) fn empty() -> Self {
        Self {
            owners: vec![NOBODY; usize::from(SLOTS)],
            members: Vec::new(),
        }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Member> {
        let place = self.owners.get(usize::from(slot))?;
        self.members.get(usize::from(*place))
    }

    /// Those who have slots.
    pub(super) fn owners(&self) -> HashSet<&Address> {
        let places: HashSet<_> = self.owners.iter().collect();
        let owners = places
            .into_iter()
            .filter_map(|place| self.members.get(usize::from(*place)));
        owners.map(|member| &member.address).collect()
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn member(&self, address: &Address) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.address == *address)
    }

    /// The member of this address; a new one, where there is room for one more.
    pub(super) fn member_or(
        &mut self,
        address: &Address,
        connect: impl FnOnce() -> Option<Arc<Node>>,
    ) -> Option<Member> {
        if let Some(member) = self.member(address) {
            return Some(member.clone());
        }
        if self.members.len() >= 2 * MOST_NODES {
            return None;
        }
        let member = Member {
            address: address.clone(),
            node: connect()?,
        };
        self.members.push(member.clone());
        Some(member)
    }

    pub(super) fn set_owner(&mut self, slot: u16, address: &Address) {
        let place = self.members.iter().position(|it| it.address == *address);
        let owner = self.owners.get_mut(usize::from(slot));
        if let Some((place, owner)) = place.zip(owner) {
            *owner = place as u16;
        }
    }

    /// A map with these owners, and no members but them.
    pub(super) fn of(
        ranges: Vec<Range>,
        mut node: impl FnMut(&Address) -> Option<Arc<Node>>,
    ) -> Self {
        let mut map = Self::empty();
        let mut places = HashMap::new();
        for Range {
            first,
            last,
            address,
        } in ranges
        {
            let place = *places.entry(address).or_insert_with_key(|address| {
                let node = node(address)?;
                let address = address.clone();
                map.members.push(Member { address, node });
                Some(map.members.len() as u16 - 1)
            });
            let owners = map.owners.get_mut(usize::from(first)..=usize::from(last));
            if let Some((place, owners)) = place.zip(owners) {
                owners.fill(place);
            }
        }
        map
    }
}
