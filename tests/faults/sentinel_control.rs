//! The control document behind Sentinel.

use std::time::Duration;

use tower_throttle::control::{Control, Mode};

use crate::{
    rig,
    row::{Row, ms},
    sentinel::Watched,
    support::RedisServer,
    wait,
};

const KEY: &str = "ttC{control}";

/// Waits until all know so many entries, and nothing is wrong. Returns how long that took.
fn agree(controls: &[Control], entries: usize) -> Duration {
    wait::until("processes that agree", || {
        controls.iter().all(|control| {
            let status = control.status();
            (status.entries, status.problem) == (entries, None)
        })
    })
}

fn stored(server: &RedisServer) -> String {
    server.command(&["GET", KEY])
}

/// The primary dies, and the replica that takes over has not received the last change. Then it
/// loses all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_behind_sentinel_loses_no_change_of_the_control_document() {
    let mut row = Row::start("sentinel control document");
    let watched = tokio::task::spawn_blocking(Watched::start).await;
    let mut watched = watched.expect("sentinels");
    let controls = [0, 1].map(|_| rig::store(rig::CALL, &watched.url()).control());
    let [one, other] = &controls;
    wait::until_async("the primary", async || {
        let ban = one.ban("plan", "ann", Duration::from_secs(3_600));
        ban.await.is_ok()
    })
    .await;
    agree(&controls, 1);
    let former = stored(watched.primary());
    let change = one.set_mode("burst", Mode::Shadow);
    change.await.expect("it is made");
    agree(&controls, 2);

    let old = watched.primary();
    let port = old.port();
    old.kill();
    watched.wait_for_another(port);
    let new = watched.primary();
    new.command(&["SET", KEY, &former]);
    let mended = wait::until("the last change", || stored(new).contains("burst"));
    agree(&controls, 2);

    new.command(&["FLUSHALL"]);
    let restored = wait::until("the document", || stored(new).contains("burst"));
    agree(&controls, 2);
    assert!(other.unban("plan", "ann").await.expect("it is made"));
    agree(&controls, 1);
    row.figure("a lost change is back after", ms(mended));
    row.figure("a lost document", ms(restored));
    row.tell(1);
}
