//! As many callers as requests.

use crate::prelude::*;

const TASKS: u64 = 256;
const MOST_BYTES: u64 = 250;
/// One unit is back after that, and the key is gone.
const LIFE: Duration = Duration::from_secs(5);

fn keys(server: &RedisServer) -> u64 {
    server.command(&["DBSIZE"]).parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unique_callers_cost_little_memory_and_expire() {
    let mut row = Row::start("unique callers");
    let server = RedisServer::start();
    let callers: u64 = or_long(50_000, 5_000_000);
    let quota = TokenBucket::new(1, or_long(LIFE, LIFE * 60));
    let limiter = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    rig::ready(&limiter).await;
    let empty = server.info("used_memory");
    let sampler = Sampler::start();
    let mut asking = JoinSet::new();
    for task in 0..TASKS {
        let limiter = limiter.clone();
        asking.spawn(async move {
            for caller in (task..callers).step_by(TASKS as usize) {
                let decision = limiter.check(caller).await.expect("a decision");
                assert!(decision.is_allowed(), "{caller} was never here");
            }
        });
    }
    asking.join_all().await;

    let memory = sampler.stop().bounded(32 * 1_024, 100).expect("I3");
    let there = keys(&server);
    assert!(there > callers / 10, "{there} are enough to weigh");
    let bytes = (server.info("used_memory") - empty) / there;
    assert!(bytes <= MOST_BYTES, "{bytes} bytes for each caller");
    let life = or_long(LIFE, LIFE * 60);
    tokio::time::sleep(life).await;
    let gone = wait::until("an empty server", || keys(&server) == 0);
    row.figure("bytes for each caller", bytes);
    row.took(
        "all gone after",
        life + gone,
        life + Duration::from_secs(60),
    );
    row.figure("this process grew by kB", memory.most - memory.before);
    row.tell(callers);
}
