//! Requests of few callers, whose denials are counted here, too.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    Decision, Fingerprint, FixedWindow, Key, Policy, RateLimitLayer, RequestHead, key,
};

use super::{
    random::Random,
    web::{get, hello},
};

/// How often each policy denied each caller.
type Counts = HashMap<(String, Fingerprint), u64>;

const COST: &str = "x-cost";

/// Each has other callers, and its own limit. Some requests ask for more than either ever grants.
pub fn policies() -> [Policy; 2] {
    let cost = |head: &RequestHead<'_>| {
        let cost = head.headers().get(COST).and_then(|cost| cost.to_str().ok());
        cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
    };
    let user = Policy::new("user", FixedWindow::per_day(6)).key(key::header("x-user"));
    let team = Policy::new("team", FixedWindow::per_day(3)).key(key::header("x-team"));
    [user, team].map(|policy| policy.cost_by(cost))
}

/// Makes requests in random order: often the same several times in a row, sometimes after a reset
/// of its callers. The layer's list is to have what the decisions say.
pub async fn assert_exact(
    layer: &RateLimitLayer,
    random: &mut Random,
    between: impl Fn(&mut Random),
) {
    let begun = period();
    let mut counts = Counts::new();
    for _ in 0..300 {
        let pick = |random: &mut Random, names: [&'static str; 2]| names[random.below(2) as usize];
        let (user, team) = (pick(random, ["ann", "bob"]), pick(random, ["red", "blue"]));
        let cost = if random.percent(20) { "5" } else { "1" };
        let request = || get([("x-user", user), ("x-team", team), (COST, cost)]);
        if random.percent(10) {
            let request = request();
            let buckets = layer.buckets(&RequestHead::from(&request)).expect("keys");
            buckets.reset().await.expect("a reset");
        }
        for _ in 0..=random.below(4) {
            let service = layer.layer(service_fn(hello));
            let response = service.oneshot(request()).await.expect("a response");
            let decision = response.extensions().get::<Decision>().expect("a decision");
            for policy in decision.denied_by() {
                let caller = if policy.name() == "user" { user } else { team };
                let caller = (
                    policy.name().to_owned(),
                    Fingerprint::from(&Key::from(caller)),
                );
                *counts.entry(caller).or_default() += 1;
            }
            between(random);
        }
    }
    if period() != begun {
        return; // A layer on Redis halves its counts by this machine's clock.
    }
    let listed = layer.top_denied(20);
    assert_eq!(listed.total, counts.values().sum::<u64>());
    let listed = listed.offenders.into_iter();
    let listed: Counts = listed
        .map(|offender| ((offender.policy, offender.fingerprint), offender.count))
        .collect();
    assert!(counts.len() > 2, "{counts:?}");
    assert_eq!(listed, counts);
}

/// The number of the ten minutes after which counts are halved.
fn period() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time after 1970").as_secs() / 600
}
