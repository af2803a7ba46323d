//! The end of a wait with a timer of its own.

#![allow(clippy::expect_used)]

use super::*;
use crate::{
    charge::Operation,
    metrics::histogram::Recording,
    store::{
        redis::{connect::Settings, key::KeyNames, reply::CheckResult},
        tasks::Tasks,
    },
    util::hash::SecretHasher,
};

fn dispatcher() -> Arc<Dispatcher> {
    let settings = Settings::of_server("127.0.0.1:1").expect("settings");
    let shared = Arc::new(Shared {
        runtime: Handle::current(),
        tasks: Tasks::default(),
        names: KeyNames::new("tt".to_owned(), Default::default()).expect("names"),
        timeout: Duration::from_secs(1),
        connections: 1,
        max_in_flight: 8,
        clock: None,
        random: SecretHasher::default(),
        nonce: 0.into(),
        call_seconds: Recording::new(&[], 1.0),
        checks_per_call: Recording::new(&[], 1.0),
    });
    let pool = Pool::connect(&shared, settings, drop, shared.first_grace());
    Dispatcher::new(pool, &shared)
}

#[tokio::test]
async fn an_answer_that_came_at_the_deadline_is_used() {
    let dispatcher = dispatcher();
    let deadline = Instant::now();
    let request = ScriptRequest {
        operation: Operation::Take,
        slot: 0,
        charges: Default::default(),
        shadows: Vec::new(),
    };
    let found = CheckResult {
        now_us: 7,
        fitting: 1,
        readings: Default::default(),
        shadows: Vec::new(),
    };

    let (sender, mut receiver) = oneshot::channel();
    sender.send(Ok(found)).expect("a receiver");
    let found = dispatcher
        .give_up(deadline, 0, &mut receiver)
        .expect("an answer");
    assert_eq!(found.now_us, 7);

    let (_sender, mut receiver) = oneshot::channel();
    let sent = dispatcher
        .give_up(deadline, 0, &mut receiver)
        .expect_err("no answer");
    assert!(sent.is_timeout() && sent.may_have_run());

    let (sender, mut receiver) = oneshot::channel();
    dispatcher.state().checks.jobs.push_back(Job {
        id: 0,
        request: Arc::new(request),
        deadline,
        answer: Some(sender),
        answers_before: 0,
        room: dispatcher.admit(false).expect("room"),
    });
    assert_eq!(dispatcher.in_flight(), 1);
    let queued = dispatcher.give_up(deadline, 0, &mut receiver);
    let not_sent = queued.expect_err("no answer");
    assert!(!not_sent.may_have_run(), "{not_sent:?}");
}
