//! The bare decision in this process, keyed by a string: no HTTP at all.

use governor::RateLimiter;
use tower_throttle::{Limiter, MemoryStore};

use super::threads;
use crate::{
    callers::{Callers, MANY, api_key},
    measured::{SHORT, in_turns},
    on_threads::{at_once, round},
    peers::Rate,
    table::{Row, Table},
};

pub fn rows(table: &mut Table) {
    let keys: Vec<_> = (0..MANY).map(api_key).collect();
    let works = [
        ("100,000 keys", MANY, 2.0),
        ("1,000 keys", 1_000, 2.0),
        ("one key", 1, 1.3),
    ];
    for (name, callers, target) in works {
        let limiter = Limiter::new(MemoryStore::new(), Rate::Ample.in_memory());
        let ours = |caller: usize| {
            let decision = at_once(limiter.check(&keys[caller])).expect("a decision");
            assert!(decision.is_allowed());
        };
        let now = |caller: usize| {
            let decision = limiter.check_now(&keys[caller]).expect("a decision");
            assert!(decision.is_allowed());
        };
        let rival = RateLimiter::dashmap(Rate::Ample.governor());
        let governor = |caller: usize| {
            assert!(rival.check_key(&keys[caller]).is_ok());
        };
        // From here on each has a bucket.
        (0..callers).for_each(ours);
        (0..callers).for_each(governor);
        let callers = Callers::Each(callers);
        for number in [1, 2] {
            let [ours, now, governor] = in_turns([
                &|| round(SHORT, number, &callers, ours),
                &|| round(SHORT, number, &callers, now),
                &|| round(SHORT, number, &callers, governor),
            ]);
            for (how, ours) in [("", ours), (", check_now", now)] {
                let name = format!("bare decision: {name}, {}{how}", threads(number));
                table.add(Row::speed(name, ours, ("governor", governor)).at_least(target));
            }
        }
    }
}
