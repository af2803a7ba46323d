//! The control document on a cluster: on the primary of its slot, wherever that is.

use tower_throttle::control::{Control, Mode};

use crate::prelude::*;

const KEY: &str = "ttC{control}";

fn modes(control: &Control) -> usize {
    control.entries().len()
}

async fn add(control: &Control, policy: &str) {
    let change = control.set_mode(policy, Mode::Shadow);
    change.await.expect("it is made");
}

/// Looked at and changed before the move, in the middle of it, and after it. Processes learn of
/// the move by redirections.
#[tokio::test(flavor = "multi_thread")]
async fn the_document_moves_with_its_slot() {
    let cluster = RedisCluster::start(3, 0);
    let processes = [0, 1].map(|_| store_at(&cluster.url()).control());
    let [one, other] = &processes;
    add(one, "before").await;
    eventually("it is seen", || modes(other) == 1);

    let slot = cluster.slot(KEY);
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to);
    add(one, "still there").await;
    cluster.move_keys(slot, from, to);
    other.refresh().await.expect("asked at the new owner");
    add(other, "there already").await;
    cluster.end_move(slot, from, to);
    add(one, "after").await;
    eventually("all is seen", || {
        processes.iter().all(|process| modes(process) == 4)
    });
    assert_eq!(cluster.nodes[to].command(&["EXISTS", KEY]), "1");
}
