//! The slot map, and how it is kept true: asked for at the start, from time to
//! time, when a node says that a slot has moved, and when a node fails.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::{
    map::{Map, Member},
    slots::{self, Address, SLOTS},
};
use crate::{
    StoreError,
    store::redis::{
        backoff::{Backoff, jittered, random},
        call::Deadline,
        connection::Connections,
        node::{Asker, Node},
        pool::{CONNECT_TIMEOUT, Settings},
    },
    telemetry,
};

/// Between two looks, however many calls fail: a fleet asks as one process many.
const SHORTEST_BETWEEN: Duration = Duration::from_millis(400);
/// Between two looks when all is well.
const LONGEST_BETWEEN: Duration = Duration::from_secs(30);

/// Enough to find the owner of a single slot, but for one time in ten million.
const MOST_TRIES: u64 = 16 * SLOTS as u64;

/// How to connect to a node, whichever it is.
#[derive(Debug)]
pub(in super::super) struct Connect {
    pub(in super::super) runtime: Handle,
    pub(in super::super) settings: Settings,
    pub(in super::super) connections: usize,
    pub(in super::super) most_in_flight: usize,
    pub(in super::super) asker: Arc<Asker>,
}

impl Connect {
    fn to(&self, address: &Address) -> Option<Arc<Node>> {
        let settings = self.settings.at(address);
        let (count, queue) = (self.connections, self.most_in_flight);
        // What an operator must know of it, the whole cluster says.
        let connections = Connections::connect(&self.runtime, settings, count, queue, drop).ok()?;
        let (runtime, asker) = (self.runtime.clone(), Arc::clone(&self.asker));
        Some(Node::new(runtime, connections, queue, asker))
    }
}

/// What became of the looks at the map.
#[derive(Clone, Debug)]
pub(super) enum Looks {
    /// The first has not ended: nobody knows yet whether there is a cluster.
    None,
    Failed(StoreError),
    /// From then on there is a map.
    Succeeded,
}

#[derive(Debug)]
pub(super) struct Topology {
    map: RwLock<Map>,
    seeds: Vec<Address>,
    connect: Connect,
    looks: watch::Sender<Looks>,
    wanted: Notify,
}

impl Topology {
    pub(super) fn new(connect: Connect, seeds: Vec<Address>) -> Arc<Self> {
        Arc::new(Self {
            map: RwLock::new(Map::empty()),
            seeds,
            connect,
            looks: watch::Sender::new(Looks::None),
            wanted: Notify::new(),
        })
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.connect.runtime
    }

    pub(super) fn looks(&self) -> watch::Receiver<Looks> {
        self.looks.subscribe()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Member> {
        self.read().owner(slot).cloned()
    }

    /// Of what these numbers stand for, one in the slots of each owner.
    pub(super) fn one_for_each_owner<T>(
        &self,
        numbered: impl Fn(u64) -> T,
        slot: impl Fn(&T) -> u16,
    ) -> Vec<T> {
        let map = self.read();
        let mut owners = map.owners();
        let mut chosen = Vec::with_capacity(owners.len());
        for one in (0..MOST_TRIES).map(numbered) {
            if owners.is_empty() {
                break;
            }
            let owner = map.owner(slot(&one));
            if owner.is_some_and(|owner| owners.remove(&owner.address)) {
                chosen.push(one);
            }
        }
        chosen
    }

    /// The node of this address, connected now if it is not yet known.
    pub(super) fn member(&self, address: &Address) -> Option<Member> {
        if let Some(member) = self.read().member(address) {
            return Some(member.clone());
        }
        self.change(|map| map.member_or(address, || self.connect.to(address)))
    }

    /// A slot has moved. The map says so at once, and asks what else has.
    pub(super) fn moved(&self, slot: u16, address: &Address) -> Option<Member> {
        let member = self.member(address)?;
        let is_known = |owner: &Member| owner.address == *address;
        if !self.read().owner(slot).is_some_and(is_known) {
            self.change(|map| map.set_owner(slot, address));
            self.look_soon();
        }
        Some(member)
    }

    pub(super) fn look_soon(&self) {
        self.wanted.notify_one();
    }

    /// Looks for as long as the store lives.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut backoff = Backoff::new();
        loop {
            match self.look().await {
                Ok(()) => {
                    backoff.reset();
                    self.looks.send_replace(Looks::Succeeded);
                    sleep(jittered(SHORTEST_BETWEEN)).await;
                    let _ = timeout(jittered(LONGEST_BETWEEN), self.wanted.notified()).await;
                }
                Err(error) => {
                    self.failed(error);
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    fn failed(&self, error: StoreError) {
        self.looks.send_if_modified(|looks| {
            if matches!(looks, Looks::None) {
                telemetry::not_connected(&error);
            }
            // An old map is better than none.
            let is_of_use = !matches!(looks, Looks::Succeeded);
            if is_of_use {
                *looks = Looks::Failed(error);
            }
            is_of_use
        });
    }

    /// Asks one node after another for the map, until one has told.
    async fn look(&self) -> Result<(), StoreError> {
        let mut last = StoreError::not_sent("no node to ask for the slots");
        for address in self.whom_to_ask() {
            let known = self.read().member(&address).cloned();
            let known = known.map(|member| member.node);
            let Some(node) = known.or_else(|| self.connect.to(&address)) else {
                continue;
            };
            let told = node.slots(Deadline::after(CONNECT_TIMEOUT)).await;
            let ranges = told.and_then(|reply| slots::parse(reply, &address));
            match ranges.map_err(|error| node.named(error)) {
                Ok(ranges) => {
                    let asked = Member { address, node };
                    self.change(|map| *map = self.renewed(map, &asked, ranges));
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Those that answer, then the addresses that the store was built with, then
    /// the rest; each time another one first.
    fn whom_to_ask(&self) -> Vec<Address> {
        let map = self.read();
        let of = |member: &Member| member.address.clone();
        let (failing, well): (Vec<_>, Vec<_>) = map
            .members()
            .iter()
            .partition(|member| member.node.is_failing());
        let mut well: Vec<_> = well.into_iter().map(of).collect();
        let is_unknown = |seed: &&Address| map.member(seed).is_none();
        let mut seeds: Vec<_> = self.seeds.iter().filter(is_unknown).cloned().collect();
        let mut failing: Vec<_> = failing.into_iter().map(of).collect();
        for list in [&mut well, &mut seeds, &mut failing] {
            let turn = usize::from(random()).checked_rem(list.len());
            list.rotate_left(turn.unwrap_or(0));
        }
        [well, seeds, failing].concat()
    }

    /// Nodes keep their connections for as long as they serve a slot.
    fn renewed(&self, map: &Map, asked: &Member, ranges: Vec<slots::Range>) -> Map {
        let known = map.members().iter().chain([asked]);
        let known: HashMap<_, _> = known
            .map(|member| (&member.address, &member.node))
            .collect();
        Map::of(ranges, |address| match known.get(address) {
            Some(node) => Some(Arc::clone(node)),
            None => self.connect.to(address),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Map) -> T) -> T {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut map)
    }
}
