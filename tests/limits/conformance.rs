//! The exported suite, on the stores of this crate and on a store of another author.

use tower_throttle::{store::BucketWords, testing};

use crate::support::prelude::*;

#[tokio::test]
async fn memory_passes() {
    for seed in 0..5 {
        let passed = testing::conformance(seed, 500, |clock| {
            MemoryStore::builder().clock(clock).capacity(100).build()
        });
        passed.await.expect("no difference");
    }
}

/// A store as another author would write it.
#[derive(Debug)]
struct MapStore {
    buckets: Mutex<HashMap<String, Vec<u64>>>,
    clock: Arc<ManualClock>,
    /// Whether it forgets refunds.
    is_broken: bool,
}

impl MapStore {
    fn new(clock: Arc<ManualClock>, is_broken: bool) -> Self {
        let buckets = Mutex::default();
        Self {
            buckets,
            clock,
            is_broken,
        }
    }

    fn name(charge: &Charge<'_>) -> String {
        let key = charge.key_bytes();
        format!("{}/{}/{key:?}", charge.policy(), charge.kind())
    }
}

impl Store for MapStore {
    fn check(&self, check: &Check<'_>) -> Answer<Decision> {
        let mut buckets = self.buckets.lock().expect("no panic");
        let names: Vec<String> = check.charges().iter().map(Self::name).collect();
        let stored = names.iter().map(|name| buckets.get(name));
        let mut decided: Vec<BucketWords> = stored
            .map(|words| BucketWords::new(words.map(Vec::as_slice)))
            .collect();
        let decision = check.decide(self.clock.now_us(), &mut decided);
        let forgets = self.is_broken && check.operation() == Operation::Refund;
        for (name, bucket) in names.into_iter().zip(decided) {
            if let (Some((words, _)), false) = (bucket.written(), forgets) {
                buckets.insert(name, words.to_vec());
            }
        }
        Answer::Now(Ok(decision))
    }

    fn reset(&self, charges: &[Charge<'_>]) -> Answer<()> {
        let mut buckets = self.buckets.lock().expect("no panic");
        for charge in charges {
            buckets.remove(&Self::name(charge));
        }
        Answer::Now(Ok(()))
    }
}

#[tokio::test]
async fn a_store_of_another_author_passes() {
    for seed in 0..8 {
        let passed = testing::conformance(seed, 500, |clock| MapStore::new(clock, false));
        passed.await.expect("no difference");
    }
}

#[tokio::test]
async fn a_store_that_forgets_refunds_does_not_pass() {
    let proved = testing::conformance(0, 500, |clock| MapStore::new(clock, true)).await;
    let difference = proved.expect_err("a difference").to_string();
    assert!(difference.contains("the store decided"), "{difference}");
}

/// A store that reads too few buckets must admit no request.
#[tokio::test]
async fn too_few_slots_admit_no_request() {
    for buckets in [0, 1, 3] {
        let short = wrapped(MemoryStore::new(), move |_, check| {
            let mut buckets = vec![BucketWords::default(); buckets];
            Answer::Now(Ok(check.decide(1, &mut buckets)))
        });
        let one = Policy::new("one", TokenBucket::per_second(5));
        let other = Policy::new("other", FixedWindow::per_second(5));
        let decision = check(&limiter_of(short, [one, other]), "ann").await;
        assert!(!decision.is_allowed(), "{buckets} buckets");
    }
}

/// Words that no bucket could have, as unexpected data in a store.
#[tokio::test]
async fn corrupt_state_causes_no_panic() {
    const NOW: u64 = 1_767_225_600_000_000;
    const MAX: u64 = u64::MAX;
    let numbers = [0, 1, 1 << 40, NOW / 1_000 + 1, 1 << 53, MAX - 1, MAX];
    for number in 0..7 * numbers.len() * numbers.len() {
        let (first, second) = (numbers[number / 7 % 7], numbers[number / 49]);
        let words = [first, second].into_iter().cycle().take(number % 7);
        let words: Vec<u64> = words.collect();
        for text in EVERY_KIND.split(" | ") {
            let words = words.clone();
            let garbage = wrapped(MemoryStore::new(), move |_, check: &Check<'_>| {
                let mut buckets = vec![BucketWords::new(Some(&words)); check.charges().len()];
                Answer::Now(Ok(check.decide(NOW, &mut buckets)))
            });
            let limiter = Limiter::new(garbage, Policy::new("any", text));
            for units in [0, 1, 5, u64::MAX] {
                let _ = limiter.check_n("ann", units).await;
                let _ = limiter.take_up_to("ann", units).await;
                let _ = limiter.credit("ann", units).await;
                let _ = limiter.debit("ann", units).await;
                let permit = limiter.acquire_n("ann", units, Duration::ZERO).await;
                drop(permit.expect("a decision"));
            }
            assert!(!format!("{:?}", peek(&limiter, "ann").await).is_empty());
        }
    }
}

const EVERY_KIND: &str = "\
5 per second | 5 per second, initial 2 | 2 per second, burst 5, refill at once, initial 1 | \
5 without refill | leaky bucket of 5 per second, queue 5 | fixed window of 5 per second | \
5 per month, spread | sliding window of 5 per second | sliding log of 5 per second | 5 at once";
