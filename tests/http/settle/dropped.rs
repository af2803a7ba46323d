//! Requests that are dropped: at each point where they wait, the settler says what is charged.

use super::{Frames, Part, left_of, window};
use crate::prelude::*;

type Response_ = Result<Response<Full<Bytes>>, Infallible>;

/// A request whose handler has begun, and does not end.
pub(crate) type Begun = Pin<Box<dyn Future<Output = ()>>>;

/// Sends a request to a handler that does not answer.
pub(crate) fn begin(layer: &RateLimitLayer) -> Begun {
    let mut begun = call(layer);
    assert!(poll(&mut begun).is_pending());
    begun
}

/// The same, before it is polled.
fn call(layer: &RateLimitLayer) -> Begun {
    let stuck = service_fn(|_: Request<Full<Bytes>>| std::future::pending::<Response_>());
    let response = layer.layer(stuck).call(plain());
    Box::pin(async { drop(response.await) })
}

/// A policy that holds 10 of 100 units, and settles so whatever it is asked. It counts how often
/// that is, and that there is no response.
fn settling(to: Settle) -> (Policy, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(move |outcome: &Outcome<'_>| {
        assert_eq!((outcome.status(), outcome.held()), (None, 10));
        assert!(outcome.is_end() && !outcome.is_complete());
        count.fetch_add(1, Ordering::SeqCst);
        to
    });
    (policy, asked)
}

/// How a settler may answer, and the units that are charged then.
const SETTLEMENTS: [(Settle, u64); 5] = [
    (Settle::Full, 10),
    (Settle::Release, 0),
    (Settle::Units(4), 4),
    (Settle::Units(12), 12),
    // There is no end to wait for.
    (Settle::AtEnd, 10),
];

/// Asserts for each settlement what is charged when `stop` has dropped the request of this layer.
fn assert_charged(stop: impl Fn(&RateLimitLayer)) {
    for (to, units) in SETTLEMENTS {
        let (policy, asked) = settling(to);
        let (layer, _) = layer_of([policy]);
        stop(&layer);
        assert_eq!(left_of(&layer), 100 - units, "{to:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn while_the_handler_works() {
    assert_charged(|layer| {
        let begun = begin(layer);
        assert_eq!(left_of(layer), 90);
        drop(begun);
    });
    // Before the first poll it is the same: the store in memory has decided.
    assert_charged(|layer| drop(call(layer)));
}

fn panic_in(layer: &RateLimitLayer) {
    let broken = service_fn(|_: Request<Full<Bytes>>| async {
        if true {
            panic!("a bug of the application's");
        }
        Response_::Ok(Response::default())
    });
    let call = std::panic::AssertUnwindSafe(|| at_once(layer.layer(broken).call(plain())));
    assert!(std::panic::catch_unwind(call).is_err());
}

/// If the settler panics while the handler's panic unwinds, all is charged.
#[test]
fn by_a_panic_of_the_handler_and_one_of_the_settler() {
    assert_charged(panic_in);
    let policy = window("units", 100).cost(10);
    let policy = policy.settle_by(|_: &Outcome<'_>| -> Settle { panic!("another bug") });
    let (layer, _) = layer_of([policy]);
    panic_in(&layer);
    assert_eq!(left_of(&layer), 90);
}

/// A layer on a store whose answers wait, and the store without the wait.
fn slow(
    policies: impl IntoIterator<Item = Policy>,
) -> (RateLimitLayer, RateLimitLayer, Arc<tokio::sync::Semaphore>) {
    let (store, _) = standing_store();
    let slow = Slow::new(store.clone());
    let gate = Arc::clone(&slow.gate);
    let (layer, _) = layer_of(policies);
    (layer.clone().store(slow), layer.store(store), gate)
}

/// The answer is awaited in a task, as the store may have decided. Once it has, it is the same.
#[tokio::test]
async fn while_the_store_decides() {
    for ((to, units), has_decided) in SETTLEMENTS
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)])
    {
        let (policy, asked) = settling(to);
        let (layer, view, gate) = slow([policy]);
        let mut begun = call(&layer);
        assert!(poll(&mut begun).is_pending());
        if has_decided {
            gate.add_permits(2);
            assert!(poll(&mut begun).is_pending());
        }
        drop(begun);
        // For the answer, and for that of the settlement.
        gate.add_permits(2);
        eventually_async("the settlement", async || {
            asked.load(Ordering::SeqCst) == 1 && left_of(&view) == 100 - units
        })
        .await;
    }
}

#[tokio::test]
async fn a_denial_is_not_settled() {
    let policy = window("units", 5).cost_by(|_| 10);
    let policy = policy.settle_by(|_: &Outcome<'_>| -> Settle { panic!("nothing is held") });
    let (layer, view, gate) = slow([policy]);
    let mut begun = call(&layer);
    assert!(poll(&mut begun).is_pending());
    drop(begun);
    gate.add_permits(1);
    eventually_async("the answer", async || gate.available_permits() == 0).await;
    tokio::task::yield_now().await;
    assert_eq!(left_of(&view), 5);
}

/// It did not reach the handler, and what a wait has taken is refunded.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_and_is_dropped_costs_nothing() {
    // For a permit, while the store decides.
    let policy = |cost| {
        let policy = Policy::new("units", TokenBucket::per_minute(100)).shared();
        let settler = |_: &Outcome<'_>| -> Settle { panic!("it took nothing") };
        policy.cost(cost).settle_by(settler)
    };
    let permits = Policy::new("permits", Concurrency::new(5)).shared();
    let (late, view, gate) = slow([permits, policy(10)]);
    let mut begun = call(&late);
    assert!(poll(&mut begun).is_pending());
    drop(begun);
    gate.add_permits(10);
    eventually_async("the refund", async || super::left(&view) == [5, 100]).await;

    // For room, which another request holds.
    let (layer, _) = layer_with([policy(60)], |builder| {
        builder.wait_up_to(Duration::from_secs(30))
    });
    let buckets = buckets_of(&layer, &plain());
    assert!(at_once(buckets.debit(60)).expect("a decision").is_allowed());
    let waiting = begin(&layer);
    tokio::time::advance(Duration::from_millis(1_500)).await;
    drop(waiting);
    assert_eq!(left_of(&layer), 40);
}

#[test]
fn while_the_body_is_sent() {
    let parts = || [Part::Data("one"), Part::Data("two"), Part::Never];
    for frames in 0..=2 {
        for (to, units) in SETTLEMENTS {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let policy = window("units", 100).cost(10);
            let policy = policy.settle_by(move |outcome: &Outcome<'_>| {
                count.fetch_add(1, Ordering::SeqCst);
                if !outcome.is_end() {
                    return Settle::AtEnd;
                }
                assert!(!outcome.is_complete());
                assert_eq!(outcome.body_bytes(), 3 * frames);
                to
            });
            let (layer, _) = layer_of([policy]);
            let mut body =
                responding(&layer, plain(), Response::new(Frames::new(parts()))).into_body();
            for _ in 0..frames {
                assert!(at_once(body.frame()).is_some());
            }
            if frames == 2 {
                assert!(poll(&mut Box::pin(body.frame())).is_pending());
            }
            assert_eq!((left_of(&layer), asked.load(Ordering::SeqCst)), (90, 1));
            drop(body);
            assert_eq!(left_of(&layer), 100 - units, "{to:?} after {frames}");
            assert_eq!(asked.load(Ordering::SeqCst), 2);
        }
    }
}
