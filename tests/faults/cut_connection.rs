//! Connections that are reset before the request, within the reply, or after it.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_throttle::TokenBucket;

use crate::support::{DEADLINE, RedisServer};
use crate::{
    checker,
    figures::{or_long, tell},
    ledger::{Outcome, Recorder},
    proxy::{Cut, Proxy},
    rig, wait,
};

const KEYS: u32 = 8;
const HIGHEST: u64 = 1_000_000;
const BAND: u64 = 100_000;
const PLACES: [Cut; 3] = [Cut::BeforeRequest, Cut::AmidReply, Cut::AfterReply];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_never_undercharge_or_repeat_a_check() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(DEADLINE, &proxy.url()), quota);
    let direct = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    rig::spread_out(&direct, KEYS, BAND).await;

    let recorder = Recorder::new(0);
    let cuts = or_long(99, 1_000);
    for number in 0..cuts {
        rig::ready(&limiter).await;
        proxy.cut_next(PLACES[number as usize % PLACES.len()]);
        let mut checks = JoinSet::new();
        for key in 0..KEYS {
            let (limiter, recorder) = (limiter.clone(), recorder.clone());
            checks.spawn(async move {
                let pending = recorder.open(key, 1);
                pending.answered(&limiter.check(u64::from(key)).await);
            });
        }
        checks.join_all().await;
        let is_cut = || proxy.cuts() > number;
        wait::until("the cut", Duration::from_secs(5), is_cut);
    }

    let ledger = recorder.ledger();
    let charges = rig::charges(&direct, &ledger, |key| HIGHEST - u64::from(key) * BAND).await;
    let surplus = checker::charged(&ledger, &charges, 1).expect("I5");
    checker::own_replies(&ledger, HIGHEST, BAND).expect("I4");
    checker::nothing_broke(&ledger).expect("I7");
    let sent = proxy.sent();
    assert_eq!(sent.sent_again(), 0, "a check was sent twice");
    let lost = rig::count(&ledger, Outcome::lacks_reply);
    assert!(surplus > 0, "replies were lost, so their charges stayed");
    // Each cut lost at least one reply, and none of those checks succeeded.
    assert!(lost >= cuts, "{lost} of {cuts}");
    tell(
        "cut connection",
        cuts,
        &[
            ("undercharged", "0".to_owned()),
            ("sent again", sent.sent_again().to_string()),
            ("replies lost", lost.to_string()),
            ("charged without a reply", surplus.to_string()),
            ("of requests", ledger.len().to_string()),
        ],
    );
}
