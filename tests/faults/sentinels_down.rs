//! Sentinels that are gone or hang, while the primary is healthy.

use crate::prelude::*;
use crate::sentinel::Watched;

const QUOTA: TokenBucket = TokenBucket::per_second(1_000_000);
/// A second for a sentinel that hangs, and the rest for the client.
const SOON: Duration = Duration::from_secs(3);

async fn watched() -> Watched {
    let started = tokio::task::spawn_blocking(Watched::start).await;
    started.expect("sentinels")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_sentinel_that_hangs_is_skipped() {
    let mut row = Row::start("sentinels down first hangs");
    let watched = watched().await;
    let _frozen = watched.freeze_sentinel(0);
    let limiter = rig::limiter(rig::store(rig::CALL, &watched.url()), QUOTA);
    let took = wait::until_async("the primary", async || limiter.check("ann").await.is_ok());
    row.took("decides after", took.await, SOON);
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_live_sentinel_is_enough() {
    let mut row = Row::start("sentinels down first alone");
    let mut watched = watched().await;
    let limiter = rig::limiter(rig::store(rig::CALL, &watched.url()), QUOTA);
    rig::ready(&limiter).await;
    let id = |watched: &mut Watched| {
        let list = watched
            .primary()
            .command(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
        // Not the connection of this command, nor those of sentinels.
        let ours = list.lines().find(|line| line.contains("cmd=eval"));
        let id = ours.and_then(|line| line.split(' ').next());
        id.map(|id| id.trim_start_matches("id=").to_owned())
    };
    let ours = id(&mut watched).expect("our connection");
    let port = watched.agreed().expect("a primary");
    watched.kill_sentinel(1);
    watched.kill_sentinel(2);
    let kill = ["CLIENT", "KILL", "ID", &ours];
    crate::support::try_command(port, &kill).expect("it is there");
    wait::until_async("the loss", async || {
        let list = crate::support::try_command(port, &["CLIENT", "LIST"]);
        !list.expect("a list").contains(&format!("id={ours} "))
    })
    .await;
    let took = wait::until_async("the primary", async || limiter.check("ann").await.is_ok());
    row.took("decides after", took.await, SOON);
    row.tell(1);
}
