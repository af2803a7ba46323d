//! A fleet of three processes that follow one control document.

use std::io::stdin;

use tokio::runtime::Runtime;

use crate::{other::Other, support::prelude::*};

/// Does what it reads, line by line, and answers with a line.
pub(crate) fn other_process(url: &str) {
    let runtime = Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    let redis = store_at(url);
    let control = redis.control();
    let limiter = Limiter::builder()
        .store(redis)
        .policy(Policy::new("plan", FixedWindow::per_day(2)))
        .control(control.clone())
        .build()
        .expect("a limiter");
    for line in stdin().lines() {
        let answer = match &*line.expect("a line") {
            "override" => {
                let quota = "5 per day".parse().expect("a quota");
                let change = control.override_quota("plan", "ann", quota);
                let made = runtime.block_on(async { change.because("ticket 4711").await });
                made.is_ok().to_string()
            }
            caller => {
                let decision = runtime.block_on(limiter.check(caller)).expect("a decision");
                let policy = decision.policies().next().expect("a policy");
                policy.capacity().to_string()
            }
        };
        println!("{answer}");
    }
}

/// An override by one process is soon in effect in all. It survives the death of Redis, and of its
/// data. A process answers the name of a caller with the capacity of the caller's bucket.
pub(crate) fn an_override_of_one_process_is_felt_in_all() {
    let mut server = RedisServer::start();
    let url = server.url();
    let mut fleet = [0, 1, 2].map(|_| Other::start(&["control", &url]));
    for process in &mut fleet {
        assert_eq!(process.ask("ann"), "2");
    }

    assert_eq!(fleet[0].ask("override"), "true");
    assert_eq!(fleet[0].ask("ann"), "5", "at once");
    for process in &mut fleet {
        eventually("it is felt", || process.ask("ann") == "5");
        assert_eq!(process.ask("bob"), "2");
    }

    server.kill();
    for _ in 0..50 {
        for process in &mut fleet {
            assert_eq!(["ann", "bob"].map(|caller| process.ask(caller)), ["5", "2"]);
        }
    }

    // It starts empty, and a process that knew the document stores it again.
    server.run();
    let mut new = Other::start(&["control", &url]);
    eventually("a new process learns of it", || new.ask("ann") == "5");
    for process in &mut fleet {
        assert_eq!(process.ask("ann"), "5");
    }
}
