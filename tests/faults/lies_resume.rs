//! After a wrong reply, whatever it did to the connection, correct replies are used again.

use std::time::{Duration, Instant};

use tokio::{task::JoinSet, time::sleep};
use tower_throttle::TokenBucket;

use crate::{
    liar::{Liar, Lie},
    outage::RESUMES,
    proxy::{Mode, Proxy},
    rig,
    row::Row,
    wait::HANGS,
};

/// Callers that check again and again, so that some are always in flight.
const CALLERS: u64 = 8;

/// On a network where replies take a while.
async fn resumes_after(name: &str, lie: Lie) {
    let mut row = Row::start(name);
    let liar = Liar::start(Lie::None);
    let proxy = Proxy::before(liar.port());
    proxy.set(Mode::Delay(Duration::from_millis(5)));
    let limiter = rig::limiter(
        rig::store(rig::CALL, &proxy.url()),
        TokenBucket::per_hour(3),
    );
    rig::ready(&limiter).await;
    let start = Instant::now();
    let lies_until = start + Duration::from_millis(300);
    let ends = lies_until + HANGS;
    let mut asking = JoinSet::new();
    liar.set(lie);
    for caller in 0..CALLERS {
        let limiter = limiter.clone();
        asking.spawn(async move {
            while Instant::now() < ends {
                let sent = Instant::now();
                let answer = limiter.check(caller).await;
                if answer.is_ok() && sent > lies_until {
                    return Some(sent - lies_until);
                }
                sleep(Duration::from_millis(1)).await;
            }
            None
        });
    }
    tokio::time::sleep_until(lies_until.into()).await;
    liar.set(Lie::None);
    let waits: Vec<_> = asking.join_all().await;
    let waits: Option<Vec<Duration>> = waits.into_iter().collect();
    let longest = waits.and_then(|waits| waits.into_iter().max());
    let longest = longest.unwrap_or_else(|| panic!("{lie:?}: no decision after it"));
    row.took("resumed after", longest, RESUMES);
    row.tell(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_recovers_from_a_surplus_reply() {
    resumes_after("lie in step again", Lie::ExtraFrame).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_recovers_from_half_a_gigabyte_that_never_came() {
    resumes_after("lie after huge bulk", Lie::HugeBulk).await;
}
