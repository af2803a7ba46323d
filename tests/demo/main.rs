//! Runs the built demo as a process and drives it over real HTTP.

mod admin;
mod algorithms;
mod asking;
mod board;
mod config;
mod examples;
mod in_flight;
#[cfg(feature = "tracing")]
mod logs;
mod metrics;
mod outage;
mod process;
mod settled;
mod sharing;
mod stopping;
#[path = "../support/mod.rs"]
mod support;
mod switches;

use std::{process::Command, time::Duration};

use crate::{
    asking::{ONE_UNIT, statuses, within},
    process::{Answer, Demo, ask, example_path, run_to_its_end},
};

#[test]
fn token_bucket_admits_ten_and_reports_what_remains() {
    let demo = Demo::start(&[]);
    let answers = within(ONE_UNIT, |caller| {
        demo.get_times(12, "/api/token-bucket", caller)
    });

    assert_eq!(statuses(&answers[..10]), [200; 10]);
    assert_eq!(statuses(&answers[10..]), [429; 2]);
    for (answer, left) in answers.iter().zip((0..10).rev()) {
        assert_eq!(answer.left("bucket"), left);
        let (shown, within_s) = (answer.header("ratelimit").expect("it"), left.max(1));
        assert_eq!(shown, format!("\"bucket\";r={left};t={within_s}"));
        assert_eq!(answer.header("retry-after"), None);
    }
    for answer in &answers {
        let policy = "\"bucket\";q=1;w=1;tt-burst=10";
        assert_eq!(answer.header("ratelimit-policy"), Some(policy));
    }
    let denied = &answers[10];
    assert_eq!(denied.header("retry-after"), Some("1"));
    assert_eq!(denied.header("ratelimit"), Some("\"bucket\";r=0;t=1"));
    assert_eq!(denied.header("cache-control"), Some("no-store"));
    assert_eq!(
        denied.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(denied.json()["violated-policies"][0], "bucket");
}

#[test]
fn fixed_window_admits_five() {
    let demo = Demo::start(&[]);
    let answers = within(Duration::from_secs(9), |caller| {
        demo.get_times(7, "/api/fixed-window", caller)
    });

    assert_eq!(statuses(&answers), [200, 200, 200, 200, 200, 429, 429]);
    for (answer, left) in answers.iter().zip([4, 3, 2, 1, 0, 0, 0]) {
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some("\"window\";q=5;w=10")
        );
        let shown = answer.header("ratelimit").expect("it");
        let within_s = shown.strip_prefix(&format!("\"window\";r={left};t="));
        let within_s: u64 = within_s.and_then(|s| s.parse().ok()).expect(shown);
        assert!((1..=10).contains(&within_s), "{shown}");
        if answer.status == 429 {
            let wait_s = within_s.to_string();
            assert_eq!(answer.header("retry-after"), Some(wait_s.as_str()));
        }
    }
}

#[test]
fn stacked_policies_are_charged_together_or_not_at_all() {
    let demo = Demo::start(&[]);
    let (answers, after) = within(ONE_UNIT, |caller| {
        let answers = demo.get_times(8, "/api/stacked", caller);
        (answers, demo.get("/api/remaining", caller))
    });

    assert_eq!(statuses(&answers), [200, 200, 200, 200, 200, 429, 429, 429]);
    let first = &answers[0];
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"burst\";q=1;w=1;tt-burst=5, \"minute\";q=20;w=60")
    );
    assert_eq!(
        first.header("ratelimit"),
        Some("\"burst\";r=4;t=4, \"minute\";r=19;t=60")
    );
    assert_eq!((first.left("burst"), first.left("minute")), (4, 19));
    // Only the policy that denied is named, and the other one was not charged.
    let denied = &answers[5];
    assert_eq!(denied.header("ratelimit"), Some("\"burst\";r=0;t=1"));
    assert_eq!(
        denied.json()["violated-policies"].to_string(),
        "[\"burst\"]"
    );
    assert_eq!((after.left("burst"), after.left("minute")), (0, 15));
}

#[test]
fn weighted_takes_the_cost_and_forbids_the_impossible() {
    let demo = Demo::start(&[]);
    let costs = [
        // The query, the status, and what remains.
        ("?cost=15", 200, 5),
        ("?cost=0", 200, 5),
        ("?cost=6", 429, 5),
        ("?cost=21", 403, 5),
        ("?cost=99999999999999999999", 403, 5),
        ("", 200, 4),
        ("?cost=", 200, 3),
        ("?cost=-7", 200, 2),
        ("?other=1&cost=2", 200, 0),
        ("?cost=0", 200, 0),
    ];
    let ask_all = |caller: &str| -> Vec<Answer> {
        let ask = |(query, _, _)| demo.post(&format!("/api/weighted{query}"), caller);
        costs.map(ask).into()
    };
    let answers = within(ONE_UNIT / 2, ask_all);

    for ((query, status, left), answer) in costs.iter().zip(&answers) {
        assert_eq!(answer.status, *status, "{query}");
        let shown = answer.header("ratelimit").expect("it");
        let item = format!("\"weight\";r={left}");
        assert!(
            shown == item || shown.starts_with(&format!("{item};")),
            "{query}: {shown}"
        );
        assert_eq!(
            answer.header("retry-after").is_some(),
            *status == 429,
            "{query}"
        );
    }
    assert!(answers[3].body.contains("Cost 21 exceeds policy"));
    // A request with the wrong method is not charged.
    assert_eq!(demo.get("/api/weighted", "caller").status, 405);
}

#[test]
fn callers_are_distinguished_by_key_or_else_by_address() {
    let demo = Demo::start(&[]);
    let spend = |caller: Option<&str>| -> Vec<u16> {
        let ask = |_| ask(demo.address, "GET", "/api/fixed-window", caller).status;
        (0..6).map(ask).collect()
    };
    let used_up = [200, 200, 200, 200, 200, 429];
    assert_eq!(spend(Some("one")), used_up);
    assert_eq!(spend(Some("another")), used_up);
    assert_eq!(spend(None), used_up);
    // A caller's address as a key is not that caller.
    assert_eq!(spend(Some("127.0.0.1")), used_up);
}

#[test]
fn health_is_not_limited_and_the_page_names_each_route() {
    let demo = Demo::start(&[]);
    for _ in 0..50 {
        let health = demo.get("/health", "caller");
        assert_eq!(health.status, 200);
        assert_eq!(health.header("ratelimit"), None);
        assert_eq!(health.header("ratelimit-policy"), None);
    }
    let page = demo.get("/", "caller");
    assert_eq!(page.status, 200);
    let kind = page.header("content-type").expect("a type");
    assert!(kind.starts_with("text/html"), "{kind}");
    let routes = "/health /api/token-bucket /api/fixed-window /api/stacked /api/weighted \
                  /api/leaky-bucket /api/paced /api/sliding-window /api/sliding-log \
                  /api/concurrency /api/login /api/tokens /api/penalty /api/remaining";
    for route in routes.split(' ') {
        assert!(page.body.contains(route), "{route}");
    }
    // Self-contained: the page loads nothing from elsewhere.
    assert!(!page.body.contains("http://") && !page.body.contains("https://"));
    assert!(!page.body.contains("/* start */"));
    for file in ["page.css", "page.js"] {
        assert!(page.body.contains(file), "{file}");
        assert_eq!(demo.get(&format!("/{file}"), "caller").status, 200);
    }
    assert_eq!(demo.get("/api/nothing", "caller").status, 404);
}

#[test]
fn the_bars_page_takes_nothing() {
    let demo = Demo::start(&[]);
    for _ in 0..30 {
        let view = demo.get("/api/remaining", "caller");
        assert_eq!(view.json()["store"], "memory");
        let left = ["bucket", "window", "burst", "minute", "weight"].map(|name| view.left(name));
        assert_eq!(left, [10, 5, 5, 20, 20]);
        let left = ["leaky", "paced", "sliding", "log", "in-flight"].map(|name| view.left(name));
        assert_eq!(left, [5, 11, 10, 5, 2]);
        let left = ["wrong-passwords", "tokens", "strikes"].map(|name| view.left(name));
        assert_eq!(left, [5, 100, 3]);
    }
}

#[test]
fn a_wrong_command_line_is_explained() {
    for options in [
        &["--wat"][..],
        &["--redis"],
        &["--listen", "--redis"],
        &["x"],
        &["--traffic"],
        &["--traffic", "flood"],
    ] {
        let output = run_to_its_end(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            shown.contains("--listen ADDR") && shown.contains("--traffic KIND"),
            "{shown}"
        );
    }
    let output = run_to_its_end(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("--redis URL"));

    let demo = Demo::start(&[]);
    let output = run_to_its_end(&["--listen", &demo.address.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(shown.contains("cannot listen on"), "{shown}");
}

#[test]
fn the_job_queue_keeps_its_pace_and_ends() {
    let output = Command::new(example_path("job_queue")).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let jobs = shown.lines().filter(|line| line.contains("runs job"));
    assert_eq!(jobs.count(), 12, "{shown}");
}
