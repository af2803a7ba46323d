//! Rows 8 to 10: primaries that are replaced, and slots that move.

use std::thread::sleep;

use fred::util::redis_keyslot;

use super::stage::{Fault, Scene};
use crate::prelude::*;
use crate::{
    sentinel::{FOLLOWS, Watched},
    support::cluster::RedisCluster,
};

/// How soon the store decides again.
const UNDER_SENTINELS: Duration = Duration::from_secs(5);
const IN_CLUSTER: Duration = Duration::from_secs(10);

pub(super) struct UnderSentinels {
    watched: Watched,
    limiter: Limiter,
    epoch: u64,
}

impl UnderSentinels {
    pub(super) async fn start() -> Self {
        let watched = tokio::task::spawn_blocking(Watched::start);
        let watched = watched.await.expect("sentinels");
        let limiter = rig::limiter(rig::store(rig::CALL, &watched.url()), quota());
        rig::ready(&limiter).await;
        let epoch = watched.epoch();
        Self {
            watched,
            limiter,
            epoch,
        }
    }
}

impl Scene for UnderSentinels {
    fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            ("killed", Some(UNDER_SENTINELS)),
            ("frozen", Some(UNDER_SENTINELS)),
            ("asked", Some(FOLLOWS)),
        ]
    }

    fn resumes(&self) -> Duration {
        UNDER_SENTINELS
    }

    fn make(&mut self, fault: &str, _: &mut Random, mended: &mut dyn FnMut()) {
        let old = self.watched.primary();
        let port = old.port();
        let mut frozen: Option<Frozen> = None;
        match fault {
            "killed" => old.kill(),
            "frozen" => frozen = Some(signals::freeze(old.pid())),
            _ => self.watched.fail_over(),
        }
        self.watched.wait_for_another(port);
        mended();
        self.epoch = self.watched.epoch();
        sleep(self.resumes());
        drop(frozen);
        self.watched.run_all();
        self.watched.wait_until_whole();
    }

    /// Sentinels on a busy machine may think that the primary was down.
    fn still_loses(&self) -> Option<Duration> {
        (self.watched.epoch() != self.epoch).then_some(FOLLOWS)
    }
}

pub(super) struct InCluster {
    cluster: RedisCluster,
    limiter: Limiter,
}

impl InCluster {
    pub(super) async fn start() -> Self {
        let cluster = tokio::task::spawn_blocking(|| RedisCluster::start(3, 3));
        let cluster = cluster.await.expect("a cluster");
        let limiter = rig::limiter(rig::store(rig::CALL, &cluster.url()), quota());
        rig::ready(&limiter).await;
        Self { cluster, limiter }
    }

    fn slot(&self, key: u32) -> u16 {
        redis_keyslot(self.limiter.storage_keys(u64::from(key))[0].as_bytes())
    }
}

impl Scene for InCluster {
    fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    fn faults(&self) -> &'static [Fault] {
        &[
            ("killed", Some(IN_CLUSTER)),
            ("frozen", Some(IN_CLUSTER)),
            ("moved slots", None),
        ]
    }

    fn hurt(&self) -> Option<u32> {
        Some(HOT)
    }

    fn resumes(&self) -> Duration {
        IN_CLUSTER
    }

    fn make(&mut self, fault: &str, dice: &mut Random, mended: &mut dyn FnMut()) {
        let slot = self.slot(HOT);
        let old = self.cluster.owner(slot);
        let mut frozen: Option<Frozen> = None;
        match fault {
            "killed" => self.cluster.nodes[old].kill(),
            "frozen" => frozen = Some(signals::freeze(self.cluster.nodes[old].pid())),
            _ => {
                self.move_slots(dice);
                return mended();
            }
        }
        wait::until("another primary", || {
            self.cluster.is_served_elsewhere(slot, old)
        });
        mended();
        sleep(Duration::from_secs(3));
        match frozen {
            Some(frozen) => drop(frozen),
            None => self.cluster.nodes[old].run(),
        }
        wait::until("a whole cluster", || {
            self.cluster.is_well() && self.cluster.are_in_sync(3)
        });
    }
}

impl InCluster {
    /// Moves the slots of some keys, one after the other, to another primary.
    fn move_slots(&self, dice: &mut Random) {
        let primaries: Vec<_> = (0..self.cluster.nodes.len())
            .filter(|place| self.cluster.slots_of(*place).next().is_some())
            .collect();
        for key in HOT..=dice.below(20) as u32 {
            let slot = self.slot(key);
            let from = self.cluster.owner(slot);
            let others: Vec<_> = primaries.iter().filter(|place| **place != from).collect();
            self.cluster.move_slot(slot, *dice.one_of(&others));
            self.cluster.wait_until_agreed();
        }
    }
}
