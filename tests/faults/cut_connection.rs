//! Connections that are reset before the request, within the reply, or after it.

use crate::prelude::*;
use crate::proxy::Cut;

const KEYS: u32 = 8;
const HIGHEST: u64 = 1_000_000;
const BAND: u64 = 100_000;
const PLACES: [Cut; 3] = [Cut::BeforeRequest, Cut::AmidReply, Cut::AfterReply];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_never_undercharge_or_repeat_a_check() {
    let mut row = Row::start("cut connection");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let quota = TokenBucket::without_refill(HIGHEST);
    let limiter = rig::limiter(rig::store(DEADLINE, &proxy.url()), quota);
    let direct = rig::limiter(rig::store(DEADLINE, &server.url()), quota);
    rig::spread_out(&direct, KEYS, BAND).await;

    let recorder = Recorder::new(0);
    let cuts = or_long(30, 1_000);
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
        wait::until("the cut", is_cut);
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
    row.figure("undercharged", 0);
    row.figure("sent again", sent.sent_again());
    row.figure("replies lost", lost);
    row.figure("charged without a reply", surplus);
    row.figure("of requests", ledger.len());
    row.tell(cuts);
}

const HELD_FOR: Duration = Duration::from_secs(60);

/// Without an answer, it is unknown whether a settlement ran. It is not sent again: if it did not
/// run, the estimate is charged when the hold lapses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_is_cut_off_is_not_sent_again_and_charges_the_estimate_once() {
    let mut row = Row::start("cut settlement");
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let clock = Arc::new(ManualClock::new());
    let limiter = |url: &str| {
        let builder = patient().clock(clock.clone());
        let policy = Policy::new("tokens", TokenBucket::without_refill(HIGHEST))
            .hold_for(HELD_FOR)
            .on_store_failure(OnStoreFailure::Deny);
        Limiter::new(builder.connect(url).expect("a store"), policy)
    };
    let (far, near) = (limiter(&proxy.url()), limiter(&server.url()));
    let (mut lapsed, cuts) = (0, or_long(12, 300));
    for number in 0..cuts {
        rig::ready(&far).await;
        let reserved = far.reserve(number, 40).await.expect("a decision");
        assert!(reserved.is_allowed());
        let place = PLACES[number as usize % PLACES.len()];
        proxy.forget();
        proxy.cut_next(place);
        let error = reserved.settle(10).await.expect_err("a lost answer");
        assert!(error.is_unavailable(), "{place:?}: {error}");
        // The connection is there again, and nothing follows on it.
        rig::ready(&far).await;
        assert_eq!(proxy.sent().sent_again(), 0, "{place:?}");
        clock.advance(HELD_FOR * 2);
        let decision = near.check_n(number, 0).await.expect("a decision");
        let left = decision.policies().next().expect("a policy").remaining();
        let charged = HIGHEST - left;
        if place == Cut::BeforeRequest {
            lapsed += 1;
            assert_eq!(charged, 40);
        } else {
            assert_eq!(charged, 10, "{place:?}");
        }
    }
    let settlements = far.metrics().store.settlements;
    assert_eq!((settlements.lost, settlements.total()), (cuts, cuts));
    row.figure("sent again", 0);
    row.figure("charged when they lapsed", lapsed);
    row.tell(cuts);
}
