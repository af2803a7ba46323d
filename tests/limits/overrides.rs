//! What a control document does in a limiter, compared with limits that are built in code.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use tower_throttle::{
    Clock, Concurrency, FixedWindow, Limiter, Lists, ManualClock, MemoryStore, Penalty, Policy,
    Quota, Source, TokenBucket, Verdict,
    control::{Control, Mode},
};

use crate::support::{
    assert_config_error,
    overlaid::{Asked, KEYS, POLICIES, Told, quota, seen},
    random::Random,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn quota_of(quota: impl TryInto<Quota, Error: std::fmt::Debug>) -> Quota {
    quota.try_into().expect("a quota")
}

fn store() -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (store, clock)
}

/// A limiter of one policy, `plan`, that admits `limit` units an hour, and its document.
fn limiter(limit: u64) -> (Limiter, Control) {
    let (store, _) = store();
    let control = store.control();
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("plan", FixedWindow::per_hour(limit)))
        .control(control.clone())
        .build();
    (limiter.expect("valid"), control)
}

fn admitted(limiter: &Limiter, key: &str) -> u64 {
    let checks = (0..100).map(|_| limiter.check_now(key).expect("in memory").is_allowed());
    checks.take_while(|is_allowed| *is_allowed).count() as u64
}

#[tokio::test]
async fn random_documents_decide_like_limits_in_code() {
    let mut random = Random::new();
    for _ in 0..60 {
        let ((store, clock), (other, other_clock)) = (store(), store());
        let control = store.control();
        let base = [quota(&mut random), quota(&mut random)];
        let mut builder = Limiter::builder().store(store).control(control.clone());
        for (name, quota) in POLICIES.iter().zip(base) {
            builder = builder.policy(Policy::new(*name, quota));
        }
        let limiter = builder.build().expect("valid");
        let mut told = Told::default();
        for _ in 0..80 {
            let now = UNIX_EPOCH + Duration::from_micros(clock.now_us());
            if random.percent(15) {
                told.change(&control, &mut random, now).await;
            }
            let step = Duration::from_millis(random.below(900));
            clock.advance(step);
            other_clock.advance(step);
            let now = now + step;

            let (key, asked) = (random.below(3) as usize, Asked::any(&mut random));
            let decision = asked.of(&limiter, KEYS[key]).await.expect("in memory");
            let bans = told.bans(key, now);
            if asked.is_denied_by_bans() && !bans.is_empty() {
                let decision = decision.expect("it decides");
                assert_eq!(decision.verdict(), Verdict::Denied);
                assert_eq!(decision.source(), Source::List);
                let denied = decision.denied_by();
                let denied = denied.map(|policy| (policy.name(), policy.retry_after()));
                let denied: Vec<_> = denied.collect();
                assert_eq!(denied.len(), bans.len());
                for ((name, left), (denied_by, retry_after)) in bans.iter().zip(denied) {
                    assert_eq!(*name, denied_by);
                    let retry_after = retry_after.expect("it ends");
                    // Documents have whole milliseconds.
                    assert!(retry_after.abs_diff(*left) <= Duration::from_millis(1));
                }
                continue;
            }
            let in_code = Limiter::builder().store(other.clone());
            let Some(in_code) = told.in_code(&base, key, in_code) else {
                assert!(decision.is_none_or(|decision| decision.is_allowed()));
                continue;
            };
            let expected = asked.of(&in_code, KEYS[key]).await.expect("in memory");
            assert_eq!(
                decision.as_ref().map(seen),
                expected.as_ref().map(seen),
                "{asked:?} {told:?} {base:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_caller_with_another_quota_keeps_its_bucket_and_others_keep_theirs() {
    let (limiter, control) = limiter(2);
    assert_eq!(
        (admitted(&limiter, "ann"), admitted(&limiter, "bob")),
        (2, 2)
    );
    let raised = control.override_quota("plan", "ann", quota_of(FixedWindow::per_hour(5)));
    raised.await.expect("an override");
    assert_eq!(
        (admitted(&limiter, "ann"), admitted(&limiter, "bob")),
        (3, 0)
    );
    // A lower quota locks no caller out, and the end of an override loses nothing.
    assert!(
        control
            .clear_override("plan", "ann")
            .await
            .expect("it was there")
    );
    let peeked = limiter.peek("ann").await.expect("in memory");
    let peeked = peeked.policies().next().expect("a policy");
    assert_eq!((peeked.remaining(), peeked.quota().limit()), (0, 2));
}

#[tokio::test]
async fn a_quota_of_another_algorithm_has_a_bucket_of_its_own() {
    let (limiter, control) = limiter(2);
    assert_eq!(admitted(&limiter, "ann"), 2);
    let tokens = quota_of(TokenBucket::per_hour(1));
    control
        .override_quota("plan", "ann", tokens)
        .await
        .expect("an override");
    assert_eq!(admitted(&limiter, "ann"), 1);
    // Its reset is that of the bucket in use.
    limiter.reset("ann").await.expect("in memory");
    assert_eq!(admitted(&limiter, "ann"), 1);
    assert!(
        control
            .clear_override("plan", "ann")
            .await
            .expect("it was there")
    );
    assert_eq!(admitted(&limiter, "ann"), 0);
}

#[tokio::test]
async fn an_override_ends_by_itself() {
    let (store, clock) = store();
    let control = store.control();
    let plan = Policy::new("plan", FixedWindow::per_day(1));
    let limiter = Limiter::builder().store(store).policy(plan);
    let limiter = limiter.control(control.clone()).build().expect("valid");
    let raised = control.override_quota("plan", "ann", quota_of(FixedWindow::per_day(9)));
    raised.until(HOUR).await.expect("an override");
    let limit = |limiter: &Limiter| {
        let decision = limiter.check_now("ann").expect("in memory");
        let limit = decision
            .policies()
            .next()
            .map(|policy| policy.quota().limit());
        limit.expect("a policy")
    };
    assert_eq!(limit(&limiter), 9);
    clock.advance(HOUR);
    control.refresh().await.expect("in memory");
    assert_eq!(limit(&limiter), 1);
}

#[tokio::test]
async fn a_ban_by_hand_denies_until_its_end_and_charges_nothing() {
    let (store, clock) = store();
    let control = store.control();
    let plan = Policy::new("plan", FixedWindow::per_day(3));
    let limiter = Limiter::builder().store(store.clone()).policy(plan);
    let limiter = limiter.control(control.clone()).build().expect("valid");
    control.ban("plan", "ann", HOUR).await.expect("a ban");
    let denied = limiter.check("ann").await.expect("in memory");
    assert_eq!(
        (denied.verdict(), denied.retry_after()),
        (Verdict::Denied, Some(HOUR))
    );
    assert_eq!(
        denied
            .denied_by()
            .map(|policy| policy.name())
            .collect::<Vec<_>>(),
        ["plan"]
    );
    assert!(!limiter.check_now("ann").expect("in memory").is_allowed());
    assert!(
        !limiter
            .take_up_to("ann", 1)
            .await
            .expect("in memory")
            .is_allowed()
    );
    assert!(!limiter.peek("ann").await.expect("in memory").is_allowed());
    let permit = limiter.acquire("ann", HOUR).await.expect("in memory");
    assert!(!permit.decision().is_allowed());
    assert!(store.is_empty(), "no bucket was asked");
    // What it used before is still paid for.
    assert_eq!(
        limiter.debit("ann", 1).await.expect("in memory").charged(),
        1
    );

    let counts = limiter.metrics();
    assert_eq!((counts.requests.banned, counts.requests.total()), (4, 4));
    assert_eq!(counts.decisions.list, 4);
    assert_eq!(counts.policy("plan").map(|checks| checks.denied), Some(4));

    // Its end needs no poll.
    clock.advance(HOUR);
    assert_eq!(admitted(&limiter, "ann"), 2);
}

#[tokio::test]
async fn a_ban_ends_early_and_is_no_ban_under_a_shadow_policy() {
    let (limiter, control) = limiter(1);
    control.ban("plan", "ann", HOUR).await.expect("a ban");
    assert_eq!(admitted(&limiter, "ann"), 0);
    assert!(control.unban("plan", "ann").await.expect("it was there"));
    assert_eq!(admitted(&limiter, "ann"), 1);
    control.ban("plan", "bob", HOUR).await.expect("a ban");
    control
        .set_mode("plan", Mode::Shadow)
        .await
        .expect("a mode");
    assert_eq!(admitted(&limiter, "bob"), 100);
}

#[tokio::test]
async fn modes_have_precedence_over_code() {
    let (store, _) = store();
    let control = store.control();
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("enforced", FixedWindow::per_hour(2)))
        .policy(Policy::new("shadow", FixedWindow::per_hour(1)).shadow())
        .control(control.clone())
        .build()
        .expect("valid");
    assert_eq!(admitted(&limiter, "a"), 2);
    control
        .set_mode("shadow", Mode::Enforce)
        .await
        .expect("a mode");
    assert_eq!(admitted(&limiter, "b"), 1);
    control
        .set_mode("enforced", Mode::Shadow)
        .await
        .expect("a mode");
    let decision = limiter.check_now("c").expect("in memory");
    assert_eq!(
        (
            decision.policies().len(),
            decision.shadow_policies().count()
        ),
        (1, 1)
    );
    control.set_mode("shadow", Mode::Off).await.expect("a mode");
    assert_eq!(admitted(&limiter, "d"), 100);
    control.clear_mode("enforced").await.expect("a mode");
    assert_eq!(admitted(&limiter, "e"), 2);
    control.clear_mode("shadow").await.expect("a mode");
    assert_eq!(
        limiter
            .check_now("f")
            .expect("in memory")
            .shadow_policies()
            .count(),
        1
    );
}

#[tokio::test]
async fn a_limiter_whose_policies_are_all_off_admits_and_charges_nothing() {
    let (store, _) = store();
    let control = store.control();
    let tokens = Policy::new("tokens", TokenBucket::per_hour(5)).hold_for(HOUR);
    let limiter = Limiter::builder()
        .store(store.clone())
        .policy(tokens)
        .policy(Policy::new("bans", Penalty::after(1)))
        .control(control.clone())
        .build()
        .expect("valid");
    control.set_mode("tokens", Mode::Off).await.expect("a mode");
    control.set_mode("bans", Mode::Off).await.expect("a mode");
    assert!(limiter.check("ann").await.expect("no store").is_allowed());
    assert_eq!(
        limiter.check_n("ann", 9).await.expect("no store").charged(),
        9
    );
    assert_eq!(
        limiter
            .take_up_to("ann", 9)
            .await
            .expect("no store")
            .charged(),
        9
    );
    assert!(limiter.peek("ann").await.expect("no store").is_allowed());
    assert_eq!(
        limiter.debit("ann", 9).await.expect("no store").charged(),
        9
    );
    assert_eq!(
        limiter.credit("ann", 9).await.expect("no store").refunded(),
        0
    );
    assert_eq!(
        limiter.strike("ann", 9).await.expect("no store").charged(),
        0
    );
    limiter.ban("ann", HOUR).await.expect("no store");
    let reserved = limiter.reserve("ann", 9).await.expect("no store");
    assert!(reserved.is_allowed());
    limiter.reset("ann").await.expect("no store");
    assert!(store.is_empty());
    assert_eq!(limiter.metrics().requests.not_limited, 4);
}

#[tokio::test]
async fn an_entry_that_cannot_be_taken_is_left_out_and_reported() {
    let (store, _) = store();
    let control = store.control();
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("plan", FixedWindow::per_hour(1)))
        .policy(Policy::new("jobs", Concurrency::new(1)))
        .control(control.clone())
        .name("workers")
        .build()
        .expect("valid");
    control
        .set_mode("jobs", Mode::Shadow)
        .await
        .expect("a mode");
    let raised = control.override_quota("plan", "ann", quota_of(FixedWindow::per_hour(2)));
    raised.await.expect("an override");
    let problem = control.status().problem.expect("it is reported");
    assert!(
        problem.contains(
            "limiter workers: policy \"jobs\": a shadow policy cannot have a Concurrency quota"
        ),
        "{problem}"
    );
    // The rest applies, and the policy is as code says.
    let ask = async || {
        limiter
            .acquire("ann", Duration::ZERO)
            .await
            .expect("in memory")
    };
    let (first, second) = (ask().await, ask().await);
    assert!(first.decision().is_allowed() && !second.decision().is_allowed());
    assert_eq!(
        second
            .decision()
            .denied_by()
            .map(|policy| policy.name())
            .collect::<Vec<_>>(),
        ["jobs"]
    );
    drop(first);
    assert!(ask().await.decision().is_allowed());

    control.clear_mode("jobs").await.expect("a mode");
    assert_eq!(control.status().problem, None);
    for (policy, quota) in [
        ("plan", quota_of(Concurrency::new(5))),
        ("plan", quota_of(Penalty::after(5))),
        ("jobs", quota_of(FixedWindow::per_hour(5))),
    ] {
        control
            .override_quota(policy, "bob", quota)
            .await
            .expect("an override");
        let problem = control.status().problem.expect("it is reported");
        let expected = format!(
            "limiter workers: policy \"{policy}\": a caller's quota cannot replace that of the policy: a "
        );
        assert!(problem.contains(&expected), "{problem}");
        let peeked = limiter.peek("bob").await.expect("in memory");
        assert_eq!(
            peeked
                .policies()
                .next()
                .map(|policy| policy.quota().limit()),
            Some(1)
        );
        assert!(
            control
                .clear_override(policy, "bob")
                .await
                .expect("it was there")
        );
    }
}

#[tokio::test]
async fn lists_by_hand_stand_beside_those_of_the_limiter() {
    let (store, _) = store();
    let control = store.control();
    let lists = Lists::new().allow_keys(["ann"]).expect("keys");
    let lists = lists.deny_keys(["bob", "cat"]).expect("keys");
    let limiter = Limiter::builder()
        .store(store)
        .policy(Policy::new("plan", FixedWindow::per_hour(1)))
        .lists(lists)
        .control(control.clone())
        .build()
        .expect("valid");
    control.deny_key("ann").await.expect("an entry");
    control.allow_key("bob").await.expect("an entry");
    control.deny_key("dan").await.expect("an entry");
    let listed = ["ann", "bob", "cat", "dan", "eve"].map(|key| admitted(&limiter, key));
    assert_eq!(listed, [100, 100, 0, 0, 1]);
    // A ban comes after an allow list.
    control.ban("plan", "ann", HOUR).await.expect("a ban");
    control.ban("plan", "fay", HOUR).await.expect("a ban");
    assert_eq!(["ann", "fay"].map(|key| admitted(&limiter, key)), [100, 0]);
    control.remove_all().await.expect("in memory");
    let listed = ["ann", "bob", "cat", "dan"].map(|key| admitted(&limiter, key));
    assert_eq!(listed, [100, 0, 0, 1]);
}

#[test]
fn a_document_with_another_secret_is_an_error() {
    let store = tower_throttle::store::Guarded::new(MemoryStore::new());
    let limiter = Limiter::builder()
        .store(store)
        .policy(TokenBucket::per_hour(1));
    assert!(limiter.control(Control::in_memory()).build().is_ok());
    #[derive(Debug)]
    struct Secret(MemoryStore);
    impl tower_throttle::store::Store for Secret {
        fn check(
            &self,
            check: &tower_throttle::store::Check<'_>,
        ) -> tower_throttle::store::Answer<tower_throttle::Decision> {
            self.0.check(check)
        }

        fn reset(
            &self,
            charges: &[tower_throttle::store::Charge<'_>],
        ) -> tower_throttle::store::Answer<()> {
            self.0.reset(charges)
        }

        fn fingerprint(&self, key: &tower_throttle::Key) -> tower_throttle::Fingerprint {
            tower_throttle::Fingerprint::from(&tower_throttle::Key::from((key.clone(), "secret")))
        }
    }
    let limiter = Limiter::builder().store(Secret(MemoryStore::new()));
    let limiter = limiter
        .policy(TokenBucket::per_hour(1))
        .control(Control::in_memory());
    assert_config_error(
        limiter.build(),
        "control-secret",
        "the control document names callers with another secret",
    );
}

/// Threads take while the document changes: no unit is granted twice, and none is lost.
#[test]
fn counts_are_exact_while_documents_are_swapped() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let (limiter, control) = limiter(20_000);
    let (is_over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let decision = limiter.check_now("ann").expect("in memory");
                    let limit = decision
                        .policies()
                        .next()
                        .map(|policy| policy.quota().limit());
                    assert!(matches!(limit, Some(20_000 | 30_000)), "{limit:?}");
                    taken.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                }
            });
        }
        runtime.block_on(async {
            let quota = quota_of(FixedWindow::per_hour(30_000));
            for _ in 0..500 {
                control
                    .override_quota("plan", "ann", quota)
                    .await
                    .expect("an override");
                control
                    .clear_override("plan", "ann")
                    .await
                    .expect("no override");
            }
            control
                .override_quota("plan", "ann", quota)
                .await
                .expect("an override");
        });
        let ends = Instant::now() + Duration::from_secs(60);
        while taken.load(Ordering::Relaxed) < 30_000 && Instant::now() < ends {
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(taken.load(Ordering::Relaxed), 30_000);
    assert_eq!(limiter.metrics().requests.allowed, 30_000);
}

/// A caller that the status counts as banned is denied.
#[test]
fn a_status_is_never_ahead_of_what_is_in_effect() {
    const BANS: u64 = 100;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let (limiter, control) = limiter(20_000);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                // Callers are banned one after the other.
                let mut banned = 0;
                while banned < BANS as usize {
                    banned = control.status().entries;
                    if let Some(last) = (banned as u64).checked_sub(1) {
                        let decision = limiter.check_now(last).expect("in memory");
                        assert!(!decision.is_allowed(), "{last}");
                    }
                }
            });
        }
        runtime.block_on(async {
            for caller in 0..BANS {
                control.ban("plan", caller, HOUR).await.expect("a ban");
            }
        });
    });
}
