//! T16: a rolling deployment, under load.

use std::time::Duration;

use crate::{
    app::App,
    checker,
    common::RedisServer,
    figures::{ms, or_long, tell},
    ledger::Outcome,
    rig,
};

const PROCESSES: u8 = 3;
const HIGHEST: u64 = 1_000_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t16_processes_that_are_replaced_fail_no_request() {
    let _alone = rig::alone().await;
    let server = RedisServer::start();
    let start = |process| App::start(process, &server.url(), 0, HIGHEST);
    let mut apps: Vec<App> = (0..PROCESSES).map(start).collect();
    let rounds = or_long(1, 20);
    let mut ledger = Vec::new();
    for round in 1..=rounds {
        for place in 0..PROCESSES {
            // They work for a while, as applications do between two restarts.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let new = start(round * PROCESSES + place);
            let old = std::mem::replace(&mut apps[usize::from(place)], new);
            ledger.extend(old.stop());
        }
    }
    for app in apps {
        ledger.extend(app.stop());
    }

    let failed = rig::count(&ledger, |outcome| !outcome.is_by_store());
    assert_eq!(failed, 0, "{:?}", checker::outcomes(&ledger));
    let (_, in_time) = rig::patience();
    let latency = checker::answered(&ledger, in_time).expect("I2");
    checker::nothing_broke(&ledger).expect("I7");
    let hot: Vec<_> = ledger
        .iter()
        .filter(|entry| entry.key == 0)
        .cloned()
        .collect();
    let limiter = rig::limiter(
        rig::store(crate::common::DEADLINE, &server.url()),
        tower_throttle::TokenBucket::without_refill(HIGHEST),
    );
    let charges = rig::charges(&limiter, &hot, |_| HIGHEST).await;
    let surplus = checker::charged(&hot, &charges, 1).expect("I5");
    assert_eq!(surplus, 0, "every reply came");
    checker::own_replies(&hot, HIGHEST, HIGHEST).expect("I4");
    let restarts = u64::from(rounds) * u64::from(PROCESSES);
    tell(
        "T16",
        restarts,
        &[
            ("failed", format!("{failed} of {}", ledger.len())),
            ("p99.9", ms(latency.p999)),
            ("longest", ms(latency.most)),
            (
                "denied",
                rig::count(&ledger, |outcome| {
                    outcome == Outcome::Denied(crate::ledger::By::Store)
                })
                .to_string(),
            ),
        ],
    );
}
