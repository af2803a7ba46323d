//! A process that is killed between the hold and its settlement.

use tokio::runtime::Runtime;
use tower_throttle::metrics::Settlements;

use crate::{other::Other, support::prelude::*};

const LIFETIME: Duration = Duration::from_secs(60);

/// Without refill, what is charged stays.
fn for_good() -> Quota {
    let quota = TokenBucket::without_refill(100).try_into();
    quota.expect("a quota")
}

async fn limiter(url: &str, clock: Arc<ManualClock>, quota: Quota) -> Limiter {
    let store = patient().clock(clock);
    let store = store.connect(url).expect("a store");
    let control = store.control();
    control.refresh().await.expect("the overrides");
    let policy = Policy::new("tokens", quota).hold_for(LIFETIME);
    let builder = Limiter::builder().policy(policy).control(control);
    let builder = builder.on_store_failure(OnStoreFailure::Deny);
    builder.store(store).build().expect("a limiter")
}

/// Holds 40 units until it is killed.
pub(crate) fn other_process(url: &str, quota: &str) {
    Runtime::new().expect("a runtime").block_on(async {
        let quota = quota.parse().expect("a quota");
        let limiter = limiter(url, Arc::default(), quota).await;
        let reserved = limiter.reserve("ann", 40).await.expect("a decision");
        assert!(reserved.is_allowed());
        println!("held");
        std::future::pending::<()>().await;
    });
}

fn kill_one_that_holds(url: &str, quota: Quota) {
    let mut other = Other::start(&["killed", url, &quota.to_string()]);
    assert_eq!(other.line(), "held");
}

pub(crate) fn killed() {
    what_a_killed_process_held_is_charged_once();
    what_a_killed_process_held_under_an_override_is_charged();
}

/// What a killed process held is charged in full once its lifetime is over, and once only.
fn what_a_killed_process_held_is_charged_once() {
    let server = RedisServer::start();
    kill_one_that_holds(&server.url(), for_good());
    Runtime::new().expect("a runtime").block_on(async {
        let clock = Arc::new(ManualClock::new());
        let limiter = limiter(&server.url(), Arc::clone(&clock), for_good()).await;
        let left = async || {
            // A check that may write, so that what has lapsed is charged.
            let decision = limiter.check_n("ann", 0).await.expect("a decision");
            decision.policies().next().expect("a policy").remaining()
        };
        assert_eq!(left().await, 60);
        assert_eq!(server.command(&["DBSIZE"]), "1", "nothing is charged yet");
        clock.advance(LIFETIME * 2);
        for _ in 0..4 {
            assert_eq!(left().await, 60);
            eventually("nothing is held", || server.command(&["DBSIZE"]) == "1");
            clock.advance(LIFETIME);
        }
        // No process has settled it.
        assert_eq!(limiter.metrics().store.settlements, Settlements::default());
        let reserved = limiter.reserve("ann", 60).await.expect("a decision");
        assert!(reserved.is_allowed());
        reserved.release().await.expect("a settlement");
    });
}

/// The quota of its policy would be drained a second after the hold has lapsed. That of its caller
/// is not.
fn what_a_killed_process_held_under_an_override_is_charged() {
    let server = RedisServer::start();
    let per_second: Quota = "100 per second".parse().expect("a quota");
    Runtime::new().expect("a runtime").block_on(async {
        let control = store_at(&server.url()).control();
        let given = control.override_quota("tokens", "ann", for_good());
        given.await.expect("it is made");
        kill_one_that_holds(&server.url(), per_second);

        let clock = Arc::new(ManualClock::new());
        let limiter = limiter(&server.url(), Arc::clone(&clock), per_second).await;
        clock.advance(LIFETIME * 5);
        let decision = limiter.check_n("ann", 0).await.expect("a decision");
        let policy = decision.policies().next().expect("a policy");
        assert_eq!((policy.capacity(), policy.remaining()), (100, 60));
    });
}
