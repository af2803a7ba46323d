//! The routes whose cost is known from their response, in memory and in Redis.

use crate::{
    asking::{on_each_store, statuses},
    process::{Answer, Demo, new_caller, send},
    support::eventually,
};

fn left(demo: &Demo, policy: &str, caller: &str) -> u64 {
    demo.get("/api/remaining", caller).left(policy)
}

#[test]
fn wrong_passwords_count_and_right_ones_are_free() {
    on_each_store(|demo| {
        let caller = new_caller();
        let log_in = |password: &str| -> Answer {
            demo.post(&format!("/api/login?password={password}"), &caller)
        };
        for _ in 0..10 {
            assert_eq!(log_in("sesame").status, 200);
            eventually("the settlement", || {
                left(demo, "wrong-passwords", &caller) == 5
            });
        }
        let answers: Vec<_> = (0..7).map(|_| log_in("guess")).collect();
        assert_eq!(statuses(&answers), [401, 401, 401, 401, 401, 429, 429]);
        assert_eq!(log_in("sesame").status, 429);
        // Another caller is not affected.
        let path = "/api/login?password=sesame";
        assert_eq!(demo.post(path, &new_caller()).status, 200);
    });
}

#[test]
fn a_stream_is_charged_the_tokens_that_it_used() {
    on_each_store(|demo| {
        let caller = new_caller();
        let stream = send(
            demo.address,
            "POST",
            "/api/tokens?tokens=100",
            Some(&caller),
        );
        eventually("the hold", || left(demo, "tokens", &caller) == 60);
        // The client leaves. What was not used is released.
        drop(stream);
        eventually("the settlement", || left(demo, "tokens", &caller) > 60);

        let caller = new_caller();
        let answer = demo.post("/api/tokens?tokens=3", &caller);
        assert_eq!(answer.body.matches("token ").count(), 3);
        let shown = answer.header("ratelimit").expect("it");
        assert!(shown.starts_with("\"tokens\";r=60;"), "{shown}");
        eventually("the settlement", || left(demo, "tokens", &caller) == 97);
    });
}
