//! The slot map, and how it is refreshed: at the start, from time to time, when a node
//! names another owner of a slot, and when a node fails.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    sync::{Arc, PoisonError, RwLockReadGuard},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Cluster,
    slots::{self, MAX_PRIMARIES, SLOTS},
};
use crate::{
    StoreError,
    charge::Charge,
    store::redis::{
        SendMode,
        address::Address,
        connection::Command,
        connection::{CONNECT_TIMEOUT, slot},
        dispatcher::Dispatcher,
        pool::Pool,
        supervisor::{jittered, pause_after},
    },
    telemetry,
    util::random::random,
};

/// Between two refreshes, however many calls fail: a fleet asks as many times as it has
/// processes.
const MIN_INTERVAL: Duration = Duration::from_millis(400);
/// Between two refreshes when no call fails.
const MAX_INTERVAL: Duration = Duration::from_secs(30);
/// Enough to find a key in a single slot, except for one time in ten million.
const MAX_TRIES: u64 = 16 * SLOTS as u64;

/// A node of the cluster.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) address: Address,
    pub(super) dispatcher: Arc<Dispatcher>,
}

#[derive(Debug)]
pub(super) struct Map {
    /// The owner of each slot.
    owners: Vec<Option<Arc<Member>>>,
    members: Vec<Arc<Member>>,
}

impl Map {
    pub(super) fn empty() -> Self {
        Self {
            owners: vec![None; usize::from(SLOTS)],
            members: Vec::new(),
        }
    }

    fn owner(&self, slot: u16) -> Option<&Arc<Member>> {
        self.owners.get(usize::from(slot))?.as_ref()
    }

    fn member(&self, address: &Address) -> Option<&Arc<Member>> {
        let mut members = self.members.iter();
        members.find(|member| member.address == *address)
    }
}

impl Cluster {
    /// Returns the slot of a charge's bucket.
    pub(super) fn slot(&self, charge: &Charge<'_>) -> u16 {
        slot(&self.shared.names.key(charge))
    }

    pub(super) fn known_owner(&self, slot: u16) -> Option<Arc<Member>> {
        self.read().owner(slot).cloned()
    }

    /// Returns one charge for each primary, in one of its slots. `charge`: makes a charge from
    /// a number.
    pub(super) fn one_for_each_owner(
        &self,
        charge: impl Fn(u64) -> Charge<'static>,
    ) -> SmallVec<[Charge<'static>; 1]> {
        let map = self.read();
        let owners = map.owners.iter().flatten();
        let mut missing: HashSet<_> = owners.map(|owner| &owner.address).collect();
        let mut chosen = SmallVec::new();
        for charge in (0..MAX_TRIES).map(charge) {
            if missing.is_empty() {
                break;
            }
            let owner = map.owner(self.slot(&charge));
            if owner.is_some_and(|owner| missing.remove(&owner.address)) {
                chosen.push(charge);
            }
        }
        chosen
    }

    /// Returns the dispatchers of all nodes that are in use.
    pub(in crate::store::redis) fn dispatchers(&self) -> Vec<Arc<Dispatcher>> {
        let map = self.read();
        let members = map.members.iter();
        members
            .map(|member| Arc::clone(&member.dispatcher))
            .collect()
    }

    fn connect_to(&self, address: &Address, first_grace: Duration) -> Arc<Member> {
        let settings = self.settings.at(address);
        // The whole cluster reports the problems of its nodes to operators.
        let pool = Pool::connect(&self.shared, settings, drop, first_grace);
        Arc::new(Member {
            address: address.clone(),
            dispatcher: Dispatcher::new(pool, &self.shared),
        })
    }

    /// Returns the node of an address, which is connected now if it is new. Returns `None` if
    /// there are too many nodes.
    pub(super) fn member(&self, address: &Address) -> Option<Arc<Member>> {
        self.change(|map| {
            if let Some(member) = map.member(address) {
                return Some(Arc::clone(member));
            }
            if map.members.len() >= 2 * MAX_PRIMARIES {
                return None;
            }
            let member = self.connect_to(address, self.shared.first_grace());
            map.members.push(Arc::clone(&member));
            Some(member)
        })
    }

    /// Records the new owner of a slot at once, and looks for other moves.
    pub(super) fn record_move(&self, slot: u16, address: &Address) -> Option<Arc<Member>> {
        let member = self.member(address)?;
        let is_known = |owner: Arc<Member>| owner.address == *address;
        if !self.known_owner(slot).is_some_and(is_known) {
            self.change(|map| {
                if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
                    *owner = Some(Arc::clone(&member));
                }
            });
            self.request_refresh();
        }
        Some(member)
    }

    pub(super) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Refreshes the map as long as the store lives.
    pub(super) async fn keep_map(self: Arc<Self>) {
        let mut failures = 0_u32;
        loop {
            match self.refresh().await {
                Ok(()) => {
                    failures = 0;
                    self.refreshes.send_replace(Some(Ok(())));
                    sleep(jittered(MIN_INTERVAL)).await;
                    let _ =
                        timeout(jittered(MAX_INTERVAL), self.refresh_requested.notified()).await;
                }
                Err(error) => {
                    self.record_failure(error);
                    sleep(pause_after(failures)).await;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    fn record_failure(&self, error: StoreError) {
        self.refreshes.send_if_modified(|state| {
            if state.is_none() {
                telemetry::not_connected(&error);
            }
            // An old map is better than none.
            let is_of_use = !matches!(state, Some(Ok(())));
            if is_of_use {
                *state = Some(Err(error));
            }
            is_of_use
        });
    }

    /// Asks one node after another for the map, until one has replied.
    async fn refresh(&self) -> Result<(), StoreError> {
        let mut last = StoreError::not_sent("no node to ask for the slots");
        for address in self.refresh_candidates() {
            let known = self.read().member(&address).cloned();
            // An unknown node is connected for this call only, so the call waits until the
            // attempt has ended.
            let member = known.unwrap_or_else(|| self.connect_to(&address, CONNECT_TIMEOUT));
            let server = &member.dispatcher.server;
            let deadline = Instant::now() + CONNECT_TIMEOUT;
            let reply = server.send(&Command::Slots, SendMode::Alone, deadline);
            let reply = reply.await.map_err(slots::explained);
            let ranges = reply.and_then(|reply| slots::parse(reply, &address));
            match ranges {
                Ok(ranges) => {
                    self.change(|map| *map = self.renewed(map, &member, ranges));
                    return Ok(());
                }
                Err(error) => last = server.with_server(error),
            }
        }
        Err(last)
    }

    /// Returns the nodes that answer, then the addresses that the store was built with, then
    /// the rest; each kind in a random order.
    fn refresh_candidates(&self) -> impl Iterator<Item = Address> {
        let map = self.read();
        let members = map.members.iter().map(|member| {
            let kind = if member.dispatcher.server.is_failing() {
                2
            } else {
                0
            };
            (kind, random(), member.address.clone())
        });
        let seeds = self.seeds.iter().filter(|seed| map.member(seed).is_none());
        let seeds = seeds.map(|seed| (1, random(), seed.clone()));
        let mut candidates: Vec<_> = members.chain(seeds).collect();
        candidates.sort_unstable_by_key(|(kind, turn, _)| (*kind, *turn));
        candidates.into_iter().map(|(_, _, address)| address)
    }

    /// Returns a map with these owners. Nodes keep their connections as long as they own a
    /// slot.
    fn renewed(
        &self,
        map: &Map,
        asked: &Arc<Member>,
        ranges: Vec<(RangeInclusive<u16>, Address)>,
    ) -> Map {
        let known = map.members.iter().chain([asked]);
        let known: HashMap<_, _> = known.map(|member| (&member.address, member)).collect();
        let mut owners: HashMap<Address, Arc<Member>> = HashMap::new();
        let mut renewed = Map::empty();
        for (slots, address) in ranges {
            let owner = owners.entry(address);
            let owner = owner.or_insert_with_key(|address| match known.get(address) {
                Some(member) => Arc::clone(member),
                None => self.connect_to(address, self.shared.first_grace()),
            });
            let slots = usize::from(*slots.start())..=usize::from(*slots.end());
            if let Some(slots) = renewed.owners.get_mut(slots) {
                slots.fill(Some(Arc::clone(owner)));
            }
        }
        renewed.members = owners.into_values().collect();
        renewed
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Map) -> T) -> T {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut map)
    }
}
