//! A Redis cluster on the loopback, of processes of its own.

use std::{
    collections::HashSet,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use tower_throttle::Limiter;

#[allow(unused_imports, reason = "each binary uses a part")]
pub use super::signals::Frozen;
use super::{RedisServer, eventually};

pub const SLOTS: u16 = 16_384;

/// The cluster stops when it is dropped. The first nodes are the primaries, with equally many
/// slots; the rest are their replicas, in turn.
#[derive(Debug)]
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
    /// Without replicas, none can take over, and a busy machine may stop a node for seconds.
    node_timeout_ms: &'static str,
}

const PATIENT_MS: &str = "20000";

impl RedisCluster {
    pub fn start(primaries: usize, replicas: usize) -> Self {
        let mut cluster = Self::with_timeout(if replicas > 0 { "1500" } else { PATIENT_MS });
        cluster.add_all(primaries + replicas);
        cluster.run(primaries);
        cluster
    }

    /// Starts primaries only, each with the slots from here on.
    pub fn with_bounds(first_slots: &[u16]) -> Self {
        let mut cluster = Self::stopped(first_slots.len());
        cluster.run_with(first_slots);
        cluster
    }

    /// Reserves ports and folders, without starting a node.
    pub fn stopped(nodes: usize) -> Self {
        let mut cluster = Self::with_timeout(PATIENT_MS);
        cluster.add_all(nodes);
        cluster
    }

    fn with_timeout(node_timeout_ms: &'static str) -> Self {
        Self {
            nodes: Vec::new(),
            node_timeout_ms,
        }
    }

    fn add_all(&mut self, nodes: usize) {
        for _ in 0..nodes {
            self.add_stopped();
        }
    }

    fn add_stopped(&mut self) -> usize {
        let options = [
            ["--cluster-enabled", "yes"],
            ["--cluster-config-file", "nodes.conf"],
            ["--cluster-node-timeout", self.node_timeout_ms],
            ["--cluster-require-full-coverage", "no"],
            ["--cluster-replica-validity-factor", "0"],
            ["--repl-diskless-sync-delay", "0"],
        ];
        self.nodes.push(RedisServer::stopped(&options.concat()));
        self.nodes.len() - 1
    }

    /// Starts all nodes and makes them a cluster.
    pub fn run(&mut self, primaries: usize) {
        let bound = |place: usize| (place * usize::from(SLOTS) / primaries) as u16;
        self.run_with(&(0..primaries).map(bound).collect::<Vec<_>>());
    }

    fn run_with(&mut self, first_slots: &[u16]) {
        let primaries = first_slots.len();
        for (epoch, node) in (1..).zip(&mut self.nodes) {
            node.run();
            let epoch: i32 = epoch;
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]);
        }
        let ends = first_slots.iter().skip(1).chain([&SLOTS]);
        for ((node, first), end) in self.nodes.iter().zip(first_slots).zip(ends) {
            let slots: Vec<_> = (*first..*end).map(|slot| slot.to_string()).collect();
            let slots: Vec<_> = slots.iter().map(String::as_str).collect();
            node.command(&[&["CLUSTER", "ADDSLOTS"], &slots[..]].concat());
        }
        for place in 1..self.nodes.len() {
            self.meet(place);
        }
        self.wait_until_well();
        for place in primaries..self.nodes.len() {
            let primary = self.id(place % primaries);
            self.nodes[place].command(&["CLUSTER", "REPLICATE", &primary]);
        }
        let replicas = self.nodes.len() - primaries;
        eventually("replicas in sync", || self.are_in_sync(replicas));
        // A link that is up may not carry data yet.
        for place in primaries..self.nodes.len() {
            let primary = &self.nodes[place % primaries];
            primary.command(&["FLUSHALL"]);
            let written = primary.info("master_repl_offset");
            eventually("replicas that follow", || {
                self.nodes[place].info("slave_repl_offset") >= written
            });
        }
        for node in &self.nodes {
            eventually("replicas that all know of", || {
                let nodes = node.command(&["CLUSTER", "NODES"]);
                let replicas = nodes.lines().filter(|line| line.contains("slave"));
                replicas.count() == self.nodes.len() - primaries
            });
        }
    }

    /// Adds a node without slots.
    pub fn add(&mut self) -> usize {
        let place = self.add_stopped();
        self.nodes[place].run();
        self.meet(place);
        self.wait_until_well();
        place
    }

    /// Removes a node without slots from the cluster, and stops it.
    pub fn remove(&mut self, place: usize) {
        let id = self.id(place);
        self.nodes[place].kill();
        for (other, node) in self.nodes.iter().enumerate() {
            if other != place {
                node.command(&["CLUSTER", "FORGET", &id]);
            }
        }
    }

    fn meet(&self, place: usize) {
        let port = self.nodes[place].port().to_string();
        self.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
    }

    fn wait_until_well(&self) {
        eventually("a cluster in which all know all", || self.is_well());
    }

    /// Returns whether all nodes know all others, and every slot is served.
    pub fn is_well(&self) -> bool {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        let signs = ["cluster_state:ok", "cluster_slots_ok:16384", &known];
        self.nodes.iter().all(|node| {
            let info = node.try_command(&["CLUSTER", "INFO"]);
            info.is_ok_and(|info| signs.iter().all(|sign| info.contains(sign)))
        })
    }

    /// Returns whether this many replicas have the data of their primaries.
    pub fn are_in_sync(&self, replicas: usize) -> bool {
        let in_step = self.nodes.iter().filter(|node| {
            let info = node.try_command(&["INFO", "replication"]);
            info.is_ok_and(|info| info.contains("master_link_status:up"))
        });
        in_step.count() == replicas
    }

    /// Returns whether another node than this one claims to serve a slot.
    pub fn is_served_elsewhere(&self, slot: u16, than: usize) -> bool {
        let mut others = (0..self.nodes.len()).filter(|place| *place != than);
        others.any(|place| self.slots_of(place).any(|its| its.contains(&slot)))
    }

    pub fn url(&self) -> String {
        let ports = self.nodes.iter().map(RedisServer::port);
        let hosts: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis-cluster://{}/", hosts.join(","))
    }

    pub fn id(&self, place: usize) -> String {
        self.nodes[place].command(&["CLUSTER", "MYID"])
    }

    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]);
        slot.parse().expect("a slot")
    }

    /// Returns the index of the node that claims to serve a slot.
    pub fn owner(&self, slot: u16) -> usize {
        let mut places = 0..self.nodes.len();
        let owner = places.find(|place| self.slots_of(*place).any(|its| its.contains(&slot)));
        owner.expect("an owner")
    }

    /// Returns callers whose first bucket is on this node.
    pub fn callers_on(&self, node: usize, limiter: &Limiter) -> impl Iterator<Item = String> {
        let slots: Vec<_> = self.slots_of(node).collect();
        let callers = (0..).map(|number: u64| format!("caller-{number}"));
        callers.filter(move |caller| {
            let slot = self.slot(&limiter.storage_keys(&**caller)[0]);
            slots.iter().any(|range| range.contains(&slot))
        })
    }

    /// Returns a caller whose bucket of the policy `own` is on another node than that of the policy
    /// `shared`, and the latter node.
    pub fn caller_apart(&self, limiter: &Limiter, own: usize, shared: usize) -> (String, usize) {
        let node_of = |caller: &str, place: usize| {
            let keys = limiter.storage_keys(caller);
            self.owner(self.slot(&keys[place]))
        };
        let node = node_of("", shared);
        let mut callers = (0..).map(|number: u64| format!("caller-{number}"));
        let caller = callers.find(|caller| node_of(caller, own) != node);
        (caller.expect("a caller"), node)
    }

    /// Returns the slots that a node claims to serve.
    pub fn slots_of(&self, place: usize) -> impl Iterator<Item = RangeInclusive<u16>> {
        let nodes = self.nodes[place].try_command(&["CLUSTER", "NODES"]);
        let nodes = nodes.unwrap_or_default();
        let own = nodes.lines().find(|line| line.contains("myself"));
        let ranges = own.unwrap_or_default().split(' ').skip(8);
        let ranges: Vec<_> = ranges
            .filter(|range| !range.starts_with('['))
            .map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let bound = |text: &str| text.parse::<u16>().expect("a slot");
                bound(first)..=bound(last)
            })
            .collect();
        ranges.into_iter()
    }

    /// Moves a slot with all its keys, as `redis-cli --cluster reshard` does.
    pub fn move_slot(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        if from == to {
            return;
        }
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, from_id, to_id) = (slot.to_string(), self.id(from), self.id(to));
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    }

    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let (slot, port) = (slot.to_string(), self.nodes[to].port().to_string());
        let from = &self.nodes[from];
        loop {
            let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
            if keys.is_empty() {
                return;
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let keys: Vec<_> = keys.lines().collect();
            from.command(&[&migrate[..], &keys].concat());
        }
    }

    /// The new owner learns of the move first, so that the slot always has an owner.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (number, id) = (slot.to_string(), self.id(to));
        let others = (0..self.nodes.len()).filter(|place| *place != to && *place != from);
        for place in [to, from].into_iter().chain(others) {
            let node = &self.nodes[place];
            // A node that has lost its last slot is a replica of the new owner.
            let is_told = node.try_command(&["CLUSTER", "SETSLOT", &number, "NODE", &id]);
            let is_well =
                is_told.map_or_else(|error| error.contains("only with masters"), |_| true);
            assert!(is_well, "SETSLOT {number}");
        }
    }

    /// Nodes that learn late of a move may undo it: no two nodes may have the same epoch.
    pub fn wait_until_agreed(&self) {
        let number = |place: usize, name: &str| {
            let info = self.nodes[place].command(&["CLUSTER", "INFO"]);
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::to_owned)
        };
        eventually("one epoch that all know", || {
            let all = 0..self.nodes.len();
            let serving = all
                .clone()
                .filter(|place| self.slots_of(*place).next().is_some());
            let own = serving
                .clone()
                .map(|place| number(place, "cluster_my_epoch:"));
            let current = all.map(|place| number(place, "cluster_current_epoch:"));
            current.collect::<HashSet<_>>().len() == 1
                && own.collect::<HashSet<_>>().len() == serving.count()
        });
    }
}

/// Repeats work on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Meanwhile {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Meanwhile {
    pub fn new(mut again: impl FnMut(u64) + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut times = 0;
            while !seen.load(Ordering::Relaxed) {
                again(times);
                times += 1;
            }
            times
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }

    /// Ends the work. Returns how often it was done.
    pub fn end(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("a thread");
        thread.join().expect("no panic")
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
