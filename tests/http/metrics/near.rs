//! `near`: a policy had room, and less than a fifth of its capacity is left.

use crate::{
    prelude::*,
    support::plans::{USED_UP, any_plan, any_scale_ms},
};

#[test]
fn each_check_is_counted_by_what_is_left() {
    let mut random = Random::new();
    let (mut near, mut ample) = (0, 0);
    for _ in 0..400 {
        let algorithm = random.one_of(&USED_UP);
        let scale_ms = any_scale_ms(&mut random, algorithm);
        let plan = any_plan(&mut random, algorithm, scale_ms);
        let clock = Arc::new(ManualClock::new());
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = Limiter::new(store, plan.policy("api"));
        let capacity = plan.spec.capacity();
        let (mut expected, mut before) = ([0; 4], limiter.metrics());
        for _ in 0..20 {
            clock.advance(Duration::from_millis(random.below(scale_ms / 8 + 1)));
            let units = random.below(capacity / 4 + 2);
            let decision = at_once(limiter.check_n("ann", units)).expect("a decision");
            let policy = decision.policies().next().expect("a policy");
            let place = if policy.is_impossible() {
                3
            } else if policy.is_denied() {
                2
            } else {
                // In whole units, as the decision shows them.
                let is_near = 5 * u128::from(policy.remaining()) < u128::from(policy.capacity());
                usize::from(is_near)
            };
            expected[place] += 1;
            let seen = limiter.metrics();
            let checks = seen.policy("api").expect("a policy");
            let counted = [
                checks.allowed,
                checks.near,
                checks.denied,
                checks.impossible,
            ];
            assert_eq!(counted, expected, "{decision:?} after {before:?}");
            before = seen;
        }
        ample += expected[0];
        near += expected[1];
    }
    assert!(near > 100 && ample > 100, "{near}, {ample}");
}
