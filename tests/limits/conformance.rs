//! The exported suite, on the stores of this crate and on a store of another author.

use tower_throttle::{store::BucketWords, testing};

use crate::support::prelude::*;

#[tokio::test]
async fn memory_passes() {
    for seed in 0..2 {
        let passed = testing::conformance(seed, 500, |clock| {
            MemoryStore::builder().clock(clock).capacity(100).build()
        });
        passed
            .await
            .unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
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
        Self {
            buckets: Mutex::default(),
            clock,
            is_broken,
        }
    }

    fn name(charge: &Charge<'_>) -> String {
        format!(
            "{}/{}/{:?}",
            charge.policy(),
            charge.kind(),
            charge.key_bytes()
        )
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
        passed
            .await
            .unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    }
}

#[tokio::test]
async fn a_store_that_forgets_refunds_does_not_pass() {
    let proved = testing::conformance(0, 500, |clock| MapStore::new(clock, true)).await;
    let difference = proved.expect_err("a difference");
    assert!(
        difference.to_string().contains("the store decided"),
        "{difference}"
    );
}

/// A store that reads too few buckets must admit no request.
#[tokio::test]
async fn too_few_slots_admit_no_request() {
    #[derive(Debug)]
    struct Short(usize);

    impl Store for Short {
        fn check(&self, check: &Check<'_>) -> Answer<Decision> {
            Answer::Now(Ok(
                check.decide(1, &mut vec![BucketWords::default(); self.0])
            ))
        }

        fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
            Answer::Now(Ok(()))
        }
    }

    for buckets in [0, 1, 3] {
        let limiter = Limiter::builder()
            .store(Short(buckets))
            .policy(Policy::new("one", TokenBucket::per_second(5)))
            .policy(Policy::new("other", FixedWindow::per_second(5)));
        let limiter = limiter.build().expect("a limiter");
        let decision = limiter.check("ann").await.expect("a decision");
        assert!(!decision.is_allowed(), "{buckets} buckets");
    }
}

/// Words that no bucket could have, as unexpected data in a store.
#[tokio::test]
async fn corrupt_state_causes_no_panic() {
    #[derive(Debug)]
    struct Garbage(Vec<u64>);

    impl Store for Garbage {
        fn check(&self, check: &Check<'_>) -> Answer<Decision> {
            let mut buckets = vec![BucketWords::new(Some(&self.0)); check.charges().len()];
            Answer::Now(Ok(check.decide(1_767_225_600_000_000, &mut buckets)))
        }

        fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
            Answer::Now(Ok(()))
        }
    }

    let numbers = [
        0,
        1,
        1 << 40,
        1_767_225_600_001,
        1 << 53,
        u64::MAX - 1,
        u64::MAX,
    ];
    for length in 0..7 {
        for first in numbers {
            for second in numbers {
                let words: Vec<u64> = [first, second].into_iter().cycle().take(length).collect();
                for policy in every_kind() {
                    let limiter = Limiter::new(Garbage(words.clone()), policy);
                    for units in [0, 1, 5, u64::MAX] {
                        let _ = limiter.check_n("ann", units).await;
                        let _ = limiter.take_up_to("ann", units).await;
                        let _ = limiter.credit("ann", units).await;
                        let _ = limiter.debit("ann", units).await;
                        let permit = limiter.acquire_n("ann", units, Duration::ZERO).await;
                        drop(permit.expect("a decision"));
                    }
                    let decision = limiter.peek("ann").await.expect("a decision");
                    assert!(!format!("{decision:?}").is_empty());
                }
            }
        }
    }
}

fn every_kind() -> [Policy; 10] {
    let second = Duration::from_secs(1);
    [
        TokenBucket::per_second(5).into(),
        TokenBucket::per_second(5).initial(2).into(),
        TokenBucket::new(2, second)
            .burst(5)
            .refill_at_once()
            .initial(1)
            .into(),
        TokenBucket::without_refill(5).into(),
        LeakyBucket::per_second(5).queue(5).into(),
        FixedWindow::per_second(5).into(),
        FixedWindow::per_calendar_month(5).spread().into(),
        SlidingWindow::per_second(5).into(),
        SlidingLog::per_second(5).into(),
        Concurrency::new(5).into(),
    ]
}
