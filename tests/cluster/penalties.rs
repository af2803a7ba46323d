//! Penalties whose caller is in another slot than those of the policies that deny.

use crate::prelude::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Two penalties of one caller around a policy for all callers, and one for all callers.
fn limiter(store: impl Store) -> Limiter {
    let penalty = Penalty::after(4).within(10 * HOUR).lasting(HOUR);
    denying_limiter(
        store,
        [
            Policy::new("first", penalty).strike_on_denial(),
            Policy::new("all", FixedWindow::per_day(9)).shared(),
            Policy::new("own", TokenBucket::per_day(2)),
            Policy::new("calm", Penalty::after(3).lasting(HOUR)),
            Policy::new(
                "all-bans",
                Penalty::after(40).within(10 * HOUR).lasting(HOUR),
            )
            .shared()
            .strike_on_denial(),
            Policy::new("pauses", Pause),
            Policy::new("all-pauses", Pause).shared(),
        ],
    )
}

#[tokio::test]
async fn a_denial_in_any_slot_is_a_strike_in_each() {
    let cluster = RedisCluster::start(3, 0);
    let (here, there) = (
        limiter(MemoryStore::new()),
        limiter(store_at(&cluster.url())),
    );
    let (mut bans, mut denials) = (0, 0);
    for round in 0..90_u64 {
        let caller = format!("caller-{}", round % 5);
        for limiter in [&here, &there] {
            match round % 18 {
                5 => limiter.pause(&*caller, HOUR).await.expect("a pause"),
                9 => limiter.resume(&*caller).await.expect("an end"),
                _ => {}
            }
        }
        let [mine, theirs] = [&here, &there].map(|limiter| {
            let caller = caller.clone();
            async move {
                match round % 9 {
                    0..6 => limiter.check(caller).await,
                    6 => limiter.take_up_to(caller, 2).await,
                    7 => limiter.strike(caller, round % 2).await,
                    _ => limiter.peek(caller).await,
                }
            }
        });
        let (mine, theirs) = (mine.await.expect("mine"), theirs.await.expect("theirs"));
        assert_eq!(theirs.verdict(), mine.verdict(), "round {round}");
        assert_eq!(facts(&theirs), facts(&mine), "round {round}");
        bans += mine.denied_by().filter(|it| it.name() == "first").count();
        denials += u64::from(!mine.is_allowed());
        if round == 50 {
            for limiter in [&here, &there] {
                limiter.ban("caller-0", HOUR).await.expect("a ban");
                limiter.reset("caller-1").await.expect("a reset");
            }
        }
    }
    assert!(bans > 5 && denials > 30, "{bans} bans, {denials} denials");
    let started = |limiter: &Limiter| limiter.metrics().bans().map(|(_, bans)| bans).collect();
    let (mine, theirs): (Vec<u64>, Vec<u64>) = (started(&here), started(&there));
    assert_eq!(theirs, mine);
    assert!(mine[0] > 2 && mine[1] == 0, "{mine:?}");
}
