//! One check of policies with different choices for a failure of the store.

use super::fake_store::{Switch, finish, unavailable, unavailable_later};
use crate::support::prelude::*;
use crate::support::web::{ask_service, layer_on};

const NAMES: [&str; 3] = ["first", "second", "third"];
const LIMITS: [u64; 3] = [3, 5, 7];
const CHOICES: [OnStoreFailure; 3] = [
    OnStoreFailure::local(),
    OnStoreFailure::Allow,
    OnStoreFailure::Deny,
];

fn policy(place: usize) -> Policy {
    match place {
        1 => Policy::new(NAMES[place], FixedWindow::per_hour(LIMITS[place])).shared(),
        _ => Policy::new(NAMES[place], TokenBucket::per_hour(LIMITS[place])).shared(),
    }
}

/// Returns what remains of each policy in this process.
fn left_locally(store: &Switch) -> Vec<u64> {
    let looking = store.looking_locally([policy(0), policy(1), policy(2)]);
    left_of(&finish(peek(&looking, "ann")))
}

/// Each combination of one to three policies with each choice.
#[test]
fn a_limiter_follows_the_choice_of_each_policy() {
    for number in 0..3 + 9 + 27 {
        let (count, number) = match number {
            0..3 => (1, number),
            3..12 => (2, number - 3),
            _ => (3, number - 12),
        };
        let choices = [number % 3, number / 3 % 3, number / 9].map(|choice| CHOICES[choice]);
        let choices = &choices[..count];
        let is_local = |place: &usize| choices.get(*place) == Some(&OnStoreFailure::local());
        let is_error = choices.contains(&OnStoreFailure::Deny);
        let most = (0..3).filter(is_local).map(|place| LIMITS[place]).min();
        let source = most.map_or(Source::StoreFailure, |_| Source::Local);
        for failure in [unavailable(), unavailable_later()] {
            let store = Switch::on(&Arc::new(ManualClock::new()));
            store.now(failure);
            let policies = choices.iter().enumerate();
            let policies = policies.map(|(place, choice)| policy(place).on_store_failure(*choice));
            let limiter = limiter_of(store.clone(), policies);
            let mut admitted = 0;
            for _ in 0..10 {
                match finish(limiter.check("ann")) {
                    Err(error) => assert!(is_error && error.is_unavailable(), "{choices:?}"),
                    Ok(decision) => {
                        assert!(!is_error, "{choices:?}");
                        assert_eq!(decision.source(), source);
                        let names: Vec<_> = decision.policies().map(|one| one.name()).collect();
                        let local = (0..3).filter(is_local).map(|place| NAMES[place]);
                        assert_eq!(names, local.collect::<Vec<_>>());
                        admitted += u64::from(decision.is_allowed());
                    }
                }
                let taken = |place| admitted * u64::from(is_local(&place));
                let left = [0, 1, 2].map(|place| LIMITS[place] - taken(place));
                assert_eq!(left_locally(&store), left, "{choices:?}");
            }
            let most = if is_error { 0 } else { most.unwrap_or(10) };
            assert_eq!(admitted, most, "{choices:?}");
            assert_eq!(store.memory().len(), 0);
        }
    }
}

/// Under stacked layers, a decision has the worst of their sources.
#[test]
fn stacked_layers_report_the_worst_source() {
    let layer = |place: usize, source: Source| {
        let store = Switch::on(&Arc::new(ManualClock::new()));
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
    for number in 0..27 {
        let [outer, middle, inner] =
            [number / 9, number / 3 % 3, number % 3].map(|number| sources[number]);
        let worst = [outer, middle, inner].into_iter().max();
        let service = tower::service_fn(move |request: http::Request<_>| {
            let decision = request.extensions().get::<Decision>();
            assert_eq!(decision.map(|decision| decision.source()), worst);
            hello(request)
        });
        let service = layer(1, middle).layer(layer(2, inner).layer(service));
        let answer = ask_service(layer(0, outer).layer(service), plain());
        let decision = answer.decision.unwrap();
        assert_eq!(Some(decision.source()), worst);
        assert_eq!(decision.verdict(), Verdict::Allowed);
    }
}
