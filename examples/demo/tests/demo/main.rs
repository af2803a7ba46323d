//! Runs the built demo as a process and drives it over real HTTP.

mod admin;
mod algorithms;
mod asking;
mod board;
mod config;
mod examples;
mod folder;
mod heads;
mod in_flight;
mod load_tests;
mod outage;
mod process;
mod settled;
mod sharing;
mod stopping;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod switches;

use crate::{
    asking::{assert_denied_by, statuses},
    process::{Demo, new_caller, run_to_its_end},
};

#[test]
fn stacked_policies_are_charged_together_or_not_at_all() {
    let (demo, caller) = (Demo::slow(None), new_caller());
    let answers = demo.get_times(8, "/api/stacked", &caller);
    assert_eq!(statuses(&answers), [200, 200, 200, 200, 200, 429, 429, 429]);
    let first = &answers[0];
    assert_eq!((first.left("burst"), first.left("minute")), (4, 19));
    // Only the policy that denied is named, and the other one was not charged.
    assert_denied_by("burst", &answers[5]);
    let after = demo.get("/api/remaining", &caller);
    assert_eq!((after.left("burst"), after.left("minute")), (0, 15));
}

#[test]
fn weighted_takes_the_cost_and_forbids_the_impossible() {
    let (demo, caller) = (Demo::slow(None), new_caller());
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
    for (query, status, left) in costs {
        let answer = demo.post(&format!("/api/weighted{query}"), &caller);
        assert_eq!(answer.status, status, "{query}");
        let shown = answer.header("ratelimit").expect("it");
        let item = format!("\"weight\";r={left}");
        assert!(
            shown == item || shown.starts_with(&format!("{item};")),
            "{query}: {shown}"
        );
        assert_eq!(
            answer.header("retry-after").is_some(),
            status == 429,
            "{query}"
        );
        let exceeds = answer.body.contains("exceeds policy");
        assert_eq!(exceeds, status == 403, "{query}");
    }
    // A request with the wrong method is not charged.
    assert_eq!(demo.get("/api/weighted", "caller").status, 405);
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
    let routes = board::ROUTES.map(|route| format!("/api/{route}"));
    for route in routes
        .iter()
        .map(|route| &**route)
        .chain(["/health", "/api/remaining"])
    {
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
