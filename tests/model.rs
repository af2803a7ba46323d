//! Both stores against a slow, obvious model, under one virtual clock: every
//! field of every decision is equal.

mod common;

use std::{rc::Rc, sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::runtime::Runtime;
use tower_throttle::{Limiter, ManualClock, MemoryStore, RedisStore, store::Store};

use common::{
    RedisServer,
    oracle::{Oracle, Said, Spec},
};

/// 2026-01-01T00:00:00Z, and a bit.
const START_US: u64 = 1_767_225_600_000_000 + 123_456;

#[derive(Clone, Debug)]
enum Step {
    /// Time goes on, or is put back, then a request comes.
    Check {
        by_us: i64,
        caller: u32,
        cost: Cost,
    },
    Peek {
        by_us: i64,
        caller: u32,
    },
    Reset {
        caller: u32,
    },
    /// Every key that means nothing any more goes away.
    ForgetDrained,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cost {
    Own,
    /// Thousandths of the smallest capacity, up to a little more than all of it.
    Share(u64),
    Units(u64),
}

fn any_bucket() -> impl Strategy<Value = Spec> {
    // From one a day to a million a second, evenly over the magnitudes.
    let intervals_ns = (3.0_f64..13.936).prop_map(|power| 10_f64.powf(power) as u64);
    (
        intervals_ns,
        1_u64..2_000,
        1_u64..300,
        0_u64..=4,
        0_u64..=300,
    )
        .prop_map(|(interval_ns, limit, burst, cut, initial)| {
            let limit = limit.min((86_400_000_000_000 / interval_ns).max(1));
            // Not a whole number of nanoseconds for each token.
            let period_ns = (interval_ns * limit + cut).max(limit * 1_000);
            let deepest = ((1_u64 << 53) - 1) / period_ns.div_ceil(limit);
            let burst = burst.min(deepest);
            Spec::Bucket {
                limit,
                period_ns,
                burst,
                // Most buckets start full.
                initial: if initial > 100 {
                    burst
                } else {
                    initial.min(burst)
                },
            }
        })
}

fn any_window() -> impl Strategy<Value = Spec> {
    let windows_ms = (0.0_f64..10.0).prop_map(|power| 10_f64.powf(power) as u64);
    (
        windows_ms,
        prop_oneof![0_u64..20, Just(1_u64 << 40)],
        any::<bool>(),
    )
        .prop_map(|(window_ms, limit, aligned)| Spec::Window {
            limit,
            window_ms,
            aligned,
        })
}

fn any_step(backwards: bool) -> impl Strategy<Value = Step> {
    let on = (0.0_f64..10.5).prop_map(|power| 10_f64.powf(power) as i64 - 1);
    let by_us = prop_oneof![
        4 => on.clone(),
        3 => Just(0),
        1 => on.prop_map(move |us| if backwards { -us } else { us }),
    ];
    let cost = prop_oneof![
        4 => Just(Cost::Own),
        2 => (0_u64..1_100).prop_map(Cost::Share),
        1 => (0_u64..4).prop_map(Cost::Units),
        1 => Just(Cost::Units(u64::MAX)),
    ];
    prop_oneof![
        12 => (by_us.clone(), 0_u32..3, cost)
            .prop_map(|(by_us, caller, cost)| Step::Check { by_us, caller, cost }),
        2 => (by_us, 0_u32..3).prop_map(|(by_us, caller)| Step::Peek { by_us, caller }),
        1 => (0_u32..3).prop_map(|caller| Step::Reset { caller }),
        // What is gone cannot be told from what was never there once the
        // clock is put back: one or the other.
        1 => Just(if backwards { Step::Reset { caller: 0 } } else { Step::ForgetDrained }),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![steps(true), steps(false)]
}

fn steps(backwards: bool) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(backwards), 1..60)
}

struct Bench {
    runtime: Runtime,
    server: RedisServer,
}

thread_local! {
    /// Each test has a thread, and so a server, of its own.
    static BENCH: Rc<Bench> = Rc::new(Bench {
        runtime: Runtime::new().expect("a runtime"),
        server: RedisServer::start(),
    });
}

fn bench() -> Rc<Bench> {
    BENCH.with(Rc::clone)
}

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    bench().runtime.block_on(future)
}

fn limiter(store: impl Store, specs: &[Spec]) -> Limiter {
    let mut builder = Limiter::builder().store(store);
    for (number, spec) in specs.iter().enumerate() {
        let cost = 2.min(spec.capacity());
        builder = builder.policy(spec.policy(&format!("policy {number}"), cost));
    }
    builder.build().expect("a limiter")
}

/// Walks the steps; says where the store and the model part.
fn agree(
    store: impl Store,
    clock: &ManualClock,
    specs: &[Spec],
    steps: &[Step],
    forget: impl Fn(String),
) -> Result<(), TestCaseError> {
    let limiter = limiter(store, specs);
    let mut oracle = Oracle::new(specs);
    let own: Vec<u64> = specs.iter().map(|spec| 2.min(spec.capacity())).collect();
    // Such a caller may be forgotten while another policy makes it wait.
    let starts_poor = specs.len() > 1
        && specs.iter().any(
            |spec| matches!(spec, Spec::Bucket { burst, initial, .. } if *initial < 2.min(*burst)),
        );
    let least = specs.iter().map(Spec::capacity).min().unwrap_or(0);
    let mut now_us = START_US;
    let mut moved = |by_us: i64| {
        now_us = now_us.saturating_add_signed(by_us).max(START_US / 2);
        clock.set_us(now_us);
        now_us
    };

    for (number, step) in steps.iter().enumerate() {
        let (decision, said) = match *step {
            Step::Check {
                by_us,
                caller,
                cost,
            } => {
                let now_us = moved(by_us);
                let units = match cost {
                    Cost::Own => None,
                    Cost::Share(thousandths) => {
                        Some((u128::from(least) * u128::from(thousandths) / 1_000) as u64)
                    }
                    Cost::Units(units) => Some(units),
                };
                let costs = units.map_or(own.clone(), |units| vec![units; specs.len()]);
                let decision = wait_for(async {
                    match units {
                        None => limiter.check(u64::from(caller)).await,
                        Some(units) => limiter.check_n(u64::from(caller), units).await,
                    }
                });
                (decision, oracle.check(caller, &costs, true, now_us))
            }
            Step::Peek { by_us, caller } => {
                let now_us = moved(by_us);
                let decision = wait_for(limiter.peek(u64::from(caller)));
                (decision, oracle.check(caller, &own, false, now_us))
            }
            Step::Reset { caller } => {
                let reset = wait_for(limiter.reset(u64::from(caller)));
                reset.expect("a reset");
                oracle.forget(caller);
                continue;
            }
            Step::ForgetDrained => {
                let now_us = moved(0);
                for caller in 0..3 {
                    let keys = limiter.redis_keys(u64::from(caller));
                    for (policy, key) in keys.into_iter().enumerate() {
                        if oracle.is_drained(policy, caller, now_us) {
                            forget(key);
                        }
                    }
                }
                continue;
            }
        };
        let decision = decision.expect("a decision");
        prop_assert_eq!(Said::from(&decision), said, "step {}: {:?}", number, step);
        if !starts_poor {
            let waited = check_wait(&limiter, clock, step, &decision)?;
            moved(waited.as_micros() as i64);
        }
    }
    Ok(())
}

/// A denied caller who waits `retry_after` would be admitted; one microsecond
/// less would not do. For checks at the policies' own costs, which a peek asks
/// about too.
fn check_wait(
    limiter: &Limiter,
    clock: &ManualClock,
    step: &Step,
    decision: &tower_throttle::Decision,
) -> Result<Duration, TestCaseError> {
    let (Step::Check { caller, cost, .. }, Some(wait)) = (step, decision.retry_after()) else {
        return Ok(Duration::ZERO);
    };
    if decision.is_allowed() || *cost != Cost::Own {
        return Ok(Duration::ZERO);
    }
    let peek = |wait: Duration| {
        clock.set_us(decision.decided_at_us() + wait.as_micros() as u64);
        let peek = wait_for(limiter.peek(u64::from(*caller)));
        peek.expect("a decision").is_allowed()
    };
    let too_short = wait - Duration::from_micros(1);
    prop_assert!(!peek(too_short), "waiting {too_short:?} is not enough");
    prop_assert!(peek(wait), "waiting {wait:?} is enough");
    Ok(wait)
}

fn agree_on_redis(specs: &[Spec], steps: &[Step]) -> Result<(), TestCaseError> {
    let bench = bench();
    let server = &bench.server;
    server.command(&["FLUSHALL"]);
    let clock = Arc::new(ManualClock::at_us(START_US));
    let _inside = bench.runtime.enter();
    let store = RedisStore::builder()
        .clock(clock.clone())
        .deadline(common::DEADLINE)
        .connect(&server.url())
        .expect("a store");
    let forget = |key: String| drop(server.command(&["DEL", &key]));
    agree(store, &clock, specs, steps, forget)?;
    server.assert_all_keys_expire();
    Ok(())
}

fn agree_in_memory(specs: &[Spec], steps: &[Step]) -> Result<(), TestCaseError> {
    let clock = Arc::new(ManualClock::at_us(START_US));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    agree(store, &clock, specs, steps, drop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn token_bucket_in_redis(spec in any_bucket(), steps in any_steps()) {
        agree_on_redis(&[spec], &steps)?;
    }

    #[test]
    fn fixed_window_in_redis(spec in any_window(), steps in any_steps()) {
        agree_on_redis(&[spec], &steps)?;
    }

    #[test]
    fn stacked_policies_in_redis(
        specs in proptest::collection::vec(prop_oneof![any_bucket(), any_window()], 2..5),
        steps in any_steps(),
    ) {
        agree_on_redis(&specs, &steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    // A store that has forgotten a drained bucket cannot know that the clock
    // was put back; Redis expires by a clock of its own here, and never does.
    #[test]
    fn any_policies_in_memory(
        specs in proptest::collection::vec(prop_oneof![any_bucket(), any_window()], 1..5),
        steps in steps(false),
    ) {
        agree_in_memory(&specs, &steps)?;
    }
}

/// Asks at the very moment that the last answer named, for as long as it takes.
fn saturate(limiter: &Limiter, clock: &ManualClock, admissions: u64) -> (u64, u64) {
    let (mut admitted, mut elapsed_us) = (0, 0);
    while admitted < admissions {
        let decision = wait_for(limiter.check("greedy"));
        let decision = decision.expect("a decision");
        if decision.is_allowed() {
            admitted += 1;
        } else {
            let wait = decision.retry_after().expect("a wait");
            clock.advance(wait);
            elapsed_us += wait.as_micros() as u64;
        }
    }
    (admitted, elapsed_us)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Over any stretch: at most the burst and the rate; at least 99.9% of the rate.
    #[test]
    fn admitted_rate_is_never_above_and_at_most_a_thousandth_below(
        limit in prop_oneof![1_u64..1_000, 1_u64..=1_000_000, 990_000_u64..=1_000_000],
        period in prop_oneof![Just(1_u64), Just(60), Just(3_600), Just(86_400)],
        burst in 1_u64..50,
    ) {
        let spec = Spec::Bucket { limit, period_ns: period * 1_000_000_000, burst, initial: burst };
        let clock = Arc::new(ManualClock::new());
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = limiter_with_cost_1(store, &spec);
        let (admitted, elapsed_us) = saturate(&limiter, &clock, burst + 20_000);
        let granted = (u128::from(limit) * u128::from(elapsed_us)) as f64 / (period as f64 * 1e6);
        let beyond_burst = (admitted - burst) as f64;
        // The clock ticks in microseconds.
        let in_a_tick = limit as f64 / (period as f64 * 1e6);
        prop_assert!(beyond_burst <= granted + in_a_tick + 1e-6, "{beyond_burst} of {granted}");
        // One more may be due in the last moment.
        prop_assert!(beyond_burst + 1.0 >= granted * 0.999, "{beyond_burst} of {granted}");
    }

    #[test]
    fn windows_admit_their_limit_again_and_again(
        limit in 1_u64..40,
        window_ms in prop_oneof![1_u64..50, 1_000_u64..100_000],
        aligned in any::<bool>(),
    ) {
        let spec = Spec::Window { limit, window_ms, aligned };
        let clock = Arc::new(ManualClock::at_us(START_US));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = limiter_with_cost_1(store, &spec);
        let (_, elapsed_us) = saturate(&limiter, &clock, limit * 101);
        // The first window may have been under way: by the clock, or by the
        // part of a millisecond before it was anchored.
        let windows = elapsed_us as f64 / (window_ms as f64 * 1e3);
        prop_assert!(windows > 99.0 && windows <= 100.0, "{windows}");
    }
}

fn limiter_with_cost_1(store: impl Store, spec: &Spec) -> Limiter {
    let policy = spec.policy("greedy", 1);
    Limiter::builder()
        .store(store)
        .policy(policy)
        .build()
        .expect("a limiter")
}
