//! The routes with the other algorithms, in memory and in Redis.

use std::{
    sync::{Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{
    asking::{
        ONE_UNIT, assert_denied_by, decided, decided_within, on_each_store, reset_seconds, within,
    },
    process::{Answer, Demo, new_caller},
};

const LEAKY: &str = "/api/leaky-bucket";
const PACED: &str = "/api/paced";
/// Asserts that exactly as many requests as fit into an empty bucket are admitted, of two more.
fn assert_fills(demo: &Demo, policy: &str, path: &str, quota: &str, limit: u64, most: Duration) {
    let times = usize::try_from(limit).expect("a small limit");
    let answers = decided_within(most, demo, times + 2, path);
    let (admitted, denied) = answers.split_at(times);
    for (answer, left) in admitted.iter().zip((0..limit).rev()) {
        assert_eq!((answer.status, answer.left(policy)), (200, left));
        assert!((1..=20).contains(&reset_seconds(answer, policy, left)));
        assert_eq!(answer.header("retry-after"), None);
    }
    for answer in denied {
        // A sliding window that has just begun is too full until a while after its end.
        let wait = assert_denied_by(policy, answer);
        assert!(wait <= Duration::from_secs(11), "{wait:?}");
    }
    for answer in &answers {
        assert_eq!(answer.header("ratelimit-policy"), Some(quota));
    }
}

#[test]
fn leaky_bucket_holds_five_and_leaks() {
    on_each_store(|demo| {
        let quota = "\"leaky\";q=1;w=1;tt-burst=5";
        assert_fills(demo, "leaky", LEAKY, quota, 5, ONE_UNIT);

        let (caller, answers) = decided(
            || {
                let ask = |caller: &str| (caller.to_owned(), demo.get_times(6, LEAKY, caller));
                within(ONE_UNIT, ask)
            },
            |asked| &asked.1,
        );
        // A caller that waits for `Retry-After` is admitted.
        thread::sleep(assert_denied_by("leaky", &answers[5]));
        assert_eq!(demo.get(LEAKY, &caller).status, 200);
    });
}

#[test]
fn sliding_window_admits_ten() {
    on_each_store(|demo| {
        // Within a second, the last window's count weighs as much as at its end.
        let quota = "\"sliding\";q=10;w=10";
        assert_fills(demo, "sliding", "/api/sliding-window", quota, 10, ONE_UNIT);
    });
}

#[test]
fn sliding_log_admits_five() {
    on_each_store(|demo| {
        let (quota, most) = ("\"log\";q=5;w=10", Duration::from_secs(9));
        assert_fills(demo, "log", "/api/sliding-log", quota, 5, most);
    });
}

/// Returns how long an admitted request was held.
fn held(answer: &Answer) -> Duration {
    if answer.status != 200 {
        return Duration::ZERO;
    }
    Duration::from_millis(answer.json()["held_ms"].as_u64().expect("a number"))
}

/// Sends this many requests at once from a new caller. Returns the answers in the order in
/// which they came, and when. Repeats that if the machine was so slow that a turn passed before
/// all were decided, or that two came at once, because then no order is right.
fn paced_at_once(demo: &Demo, times: usize) -> Vec<(Answer, Duration)> {
    let half_a_turn = Duration::from_millis(250);
    for _ in 0..10 {
        let (caller, barrier) = (new_caller(), Barrier::new(times));
        let (sender, receiver) = mpsc::channel();
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..times {
                let (caller, barrier, sender) = (&caller, &barrier, sender.clone());
                scope.spawn(move || {
                    barrier.wait();
                    let answer = demo.get(PACED, caller);
                    let _ = sender.send((answer, started.elapsed()));
                });
            }
        });
        drop(sender);
        let came_back: Vec<(Answer, Duration)> = receiver.into_iter().collect();
        let is_prompt = |(answer, at): &(Answer, Duration)| {
            answer.is_decided_by_store() && *at < held(answer) + half_a_turn
        };
        if came_back.iter().all(is_prompt) {
            return came_back;
        }
    }
    panic!("this machine never answers {times} requests in time");
}

#[test]
fn paced_requests_are_answered_one_after_another() {
    on_each_store(|demo| {
        let came_back = paced_at_once(demo, 12);
        for (answer, _) in &came_back {
            let quota = "\"paced\";q=2;w=1";
            assert_eq!(answer.header("ratelimit-policy"), Some(quota));
        }
        let (admitted, denied): (Vec<_>, Vec<_>) = came_back
            .iter()
            .partition(|(answer, _)| answer.status == 200);
        assert_eq!((admitted.len(), denied.len()), (11, 1));
        let wait = assert_denied_by("paced", &denied[0].0);
        assert_eq!(wait, Duration::from_secs(1));

        for ((answer, at), left) in admitted.iter().zip((0..11).rev()) {
            assert_eq!(answer.left("paced"), left, "not in the order of turns");
            assert!(*at >= held(answer), "{at:?}: {answer:?}");
        }
        assert_eq!(held(&admitted[0].0), Duration::ZERO);
        // Ten turns of half a second, which began with the first answer.
        let last = admitted[10].1;
        assert!(last >= Duration::from_millis(4_990), "{last:?}");
    });
}
