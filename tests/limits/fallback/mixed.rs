//! One check of policies with different choices for a failure of the store.

use super::fake_store::{Does, Switch, finish, limiter_with, unavailable, unavailable_later};
use crate::support::prelude::*;
use crate::support::web::{ask_service, layer_on};

const NAMES: [&str; 3] = ["first", "second", "third"];

fn policy(place: usize) -> Policy {
    // The first policy has a limit of three, the others more.
    let limit = [3, 5, 7][place];
    match place {
        1 => Policy::new(NAMES[place], FixedWindow::per_hour(limit)).shared(),
        _ => Policy::new(NAMES[place], TokenBucket::per_hour(limit)).shared(),
    }
}

fn choices() -> Vec<Vec<OnStoreFailure>> {
    let each = [
        OnStoreFailure::local(),
        OnStoreFailure::Allow,
        OnStoreFailure::Deny,
    ];
    let mut all: Vec<Vec<_>> = vec![vec![]];
    let mut longest = all.clone();
    for _ in 0..3 {
        longest = longest
            .iter()
            .flat_map(|start| each.map(|next| [start.clone(), vec![next]].concat()))
            .collect();
        all.extend(longest.clone());
    }
    all.retain(|choices| !choices.is_empty());
    all
}

/// Returns what remains of each policy in this process.
fn left_locally(store: &Switch) -> Vec<u64> {
    let looking = store.looking_locally([policy(0), policy(1), policy(2)]);
    let standing = finish(looking.peek("ann")).unwrap();
    assert_eq!(standing.source(), Source::Local);
    standing
        .policies()
        .map(|policy| policy.remaining())
        .collect()
}

/// Returns what remains after this many admitted requests.
fn expected(choices: &[OnStoreFailure], admitted: u64) -> Vec<u64> {
    let limits = [3, 5, 7].into_iter().enumerate();
    let left = limits.map(|(place, limit)| match choices.get(place) {
        Some(OnStoreFailure::Local { .. }) => limit - admitted,
        _ => limit,
    });
    left.collect()
}

/// Returns how many of ten requests are admitted, and how the others are denied.
fn counted(choices: &[OnStoreFailure]) -> (u64, bool) {
    if choices.contains(&OnStoreFailure::Deny) {
        return (0, true);
    }
    let local = choices.iter().enumerate();
    let limits = local.filter(|(_, choice)| **choice != OnStoreFailure::Allow);
    (
        limits
            .map(|(place, _)| [3, 5, 7][place])
            .min()
            .unwrap_or(10),
        false,
    )
}

#[test]
fn a_limiter_follows_the_choice_of_each_policy() {
    assert_eq!(choices().len(), 3 + 9 + 27);
    for choices in choices() {
        for failure in [unavailable(), unavailable_later()] {
            let clock = Arc::new(ManualClock::new());
            let store = Switch::on(&clock);
            store.now(failure);
            let limiter = limiter_with(store.clone(), [], |builder| {
                let all = choices.iter().enumerate();
                all.fold(builder, |all, (place, choice)| {
                    all.policy(policy(place).on_store_failure(*choice))
                })
            });
            let (most, is_error) = counted(&choices);
            let mut admitted = 0;
            for _ in 0..10 {
                match finish(limiter.check("ann")) {
                    Err(error) => assert!(is_error && error.is_unavailable(), "{choices:?}"),
                    Ok(decision) => {
                        assert!(!is_error, "{choices:?}");
                        let has_local = choices.contains(&OnStoreFailure::local());
                        let source = match has_local {
                            true => Source::Local,
                            false => Source::StoreFailure,
                        };
                        assert_eq!(decision.source(), source);
                        let names: Vec<_> = decision.policies().map(|one| one.name()).collect();
                        let local = choices.iter().zip(NAMES);
                        let local = local.filter(|(choice, _)| **choice != OnStoreFailure::Allow);
                        assert_eq!(names, local.map(|(_, name)| name).collect::<Vec<_>>());
                        admitted += u64::from(decision.is_allowed());
                    }
                }
                assert_eq!(
                    left_locally(&store),
                    expected(&choices, admitted),
                    "{choices:?}"
                );
            }
            assert_eq!(admitted, most, "{choices:?}");
            assert_eq!(store.memory().len(), 0);
        }
    }
}

/// Under stacked layers, a decision has the worst of their sources.
#[test]
fn stacked_layers_report_the_worst_source() {
    let clock = Arc::new(ManualClock::new());
    let layer = |place: usize, source: Source| {
        let store = Switch::on(&clock);
        let choice = match source {
            Source::StoreFailure => OnStoreFailure::Allow,
            _ => OnStoreFailure::local(),
        };
        if source != Source::Store {
            store.now(unavailable());
        }
        layer_on(store, policy(place).on_store_failure(choice))
    };
    let sources = [Source::Store, Source::Local, Source::StoreFailure];
    for outer in sources {
        for inner in sources {
            for middle in sources {
                let seen = Arc::new(Mutex::new(None));
                let record = Arc::clone(&seen);
                let service = tower::service_fn(move |request: http::Request<_>| {
                    let decision = request.extensions().get::<Decision>();
                    *record.lock().unwrap() = decision.map(|decision| decision.source());
                    hello(request)
                });
                let service = layer(1, middle).layer(layer(2, inner).layer(service));
                let answer = ask_service(layer(0, outer).layer(service), plain());
                let worst = [outer, middle, inner].into_iter().max();
                assert_eq!(*seen.lock().unwrap(), worst);
                let decision = answer.decision.unwrap();
                assert_eq!(Some(decision.source()), worst);
                assert_eq!(decision.verdict(), Verdict::Allowed);
            }
        }
    }
}

/// Either the store decides for all policies, or this process does.
#[test]
fn a_store_that_answers_again_decides_on_all() {
    let clock = Arc::new(ManualClock::new());
    let store = Switch::down(&clock);
    let limiter = limiter_with(store.clone(), [policy(0), policy(2)], |builder| builder);
    for _ in 0..4 {
        drop(finish(limiter.check("ann")).unwrap());
    }
    assert_eq!(left_locally(&store), [0, 5, 4]);
    store.now(Does::Answers);
    let decision = finish(limiter.check("ann")).unwrap();
    let left: Vec<_> = decision.policies().map(|one| one.remaining()).collect();
    assert_eq!((decision.source(), left), (Source::Store, vec![2, 6]));
    assert_eq!(left_locally(&store), [0, 5, 4], "kept for the next failure");
}
