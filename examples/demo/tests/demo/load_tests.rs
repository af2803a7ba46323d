//! The page about load tests: its commands run, and its numbers are those of the limits that it starts.

use std::time::Instant;

use crate::heads::{Stage, Step, steps};
use crate::process::Demo;
use crate::support::prelude::*;

const PAGE: &str = include_str!("../../../../docs/load-tests.md");
const REQUESTS: u64 = 1_000;
/// How long the generators of the page run.
const SECONDS: u64 = 10;

/// A token bucket, as a server describes it.
struct Limit {
    burst: u64,
    rate: u64,
}

impl Limit {
    fn read(server: &Demo, path: &str) -> Self {
        let answer = server.get(path, "another caller");
        let shown = answer.header("ratelimit-policy").expect("a limit");
        let number = |name: &str| {
            let mut fields = shown
                .split(';')
                .filter_map(|field| field.strip_prefix(name));
            let text = fields
                .next()
                .unwrap_or_else(|| panic!("no {name} in {shown}"));
            text.parse().expect("a number")
        };
        assert_eq!(number("w="), 1, "{shown} is not by the second");
        Self {
            burst: number("tt-burst="),
            rate: number("q="),
        }
    }

    fn admits_in(&self, time: Duration) -> u64 {
        self.burst + (self.rate as f64 * time.as_secs_f64()) as u64
    }
}

fn commands() -> [Step<'static>; 7] {
    let steps = steps(PAGE.lines(), "```sh");
    steps.try_into().unwrap_or_else(|steps: Vec<Step<'_>>| {
        let commands = steps.iter().map(|step| step.command);
        panic!("other commands: {:#?}", commands.collect::<Vec<_>>())
    })
}

/// Returns the page with a space in place of each end of a line.
fn text() -> String {
    PAGE.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_has(text: &str, promise: &str) {
    assert!(
        text.contains(promise),
        "the page does not promise {promise:?}"
    );
}

/// Sends the requests of a command. Returns how many were allowed and denied, and how long it took.
fn flood(stage: &Stage, command: &str) -> (u64, u64, Duration) {
    let started = Instant::now();
    let output = stage.output(command);
    let took = started.elapsed();
    let counts: HashMap<&str, u64> = output
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .map(|(count, status)| (status, count.parse().expect("a number")))
        .collect();
    let count = |status| counts.get(status).copied().unwrap_or(0);
    let (allowed, denied) = (count("200"), count("429"));
    assert_eq!(allowed + denied, REQUESTS, "{command}\n{output}");
    (allowed, denied, took)
}

#[test]
fn the_first_command_about_load_tests_gives_exactly_its_numbers() {
    let [server, flood, ..] = commands();
    assert_eq!(flood.promised, ["20 200", "980 429"]);
    let mut stage = Stage::default();
    stage.play(&server);
    stage.play(&flood);
}

#[test]
fn a_load_test_at_a_steady_rate_admits_the_burst_and_the_rate() {
    let [_, _, server, steady, ..] = commands();
    let mut stage = Stage::default();
    stage.play(&server);
    let command = steady
        .command
        .strip_prefix("time ")
        .expect("a measured run");
    let (allowed, _, took) = flood(&stage, command);
    let limit = Limit::read(&stage.servers[0], "/");
    let most = limit.admits_in(took);
    // The bucket fills at least once while the generator runs.
    assert!(
        (2 * limit.burst..=most).contains(&allowed),
        "{allowed}, {took:?}"
    );

    let Limit { burst, rate } = limit;
    let expected = limit.admits_in(Duration::from_secs(SECONDS));
    let longer = limit.admits_in(Duration::from_millis(10_600));
    let denied = REQUESTS - expected;
    let per_second = REQUESTS / SECONDS;
    for promise in [
        format!(
            "with {rate} requests a second and a burst of {burst}, and send it {per_second} a second"
        ),
        format!("{burst} + {rate} × {SECONDS} s = {expected}"),
        format!("about {expected} responses are 200, and {denied} are 429"),
        format!("took 10.6 seconds, {longer} are 200"),
        format!("oha -z {SECONDS}s -q {per_second} "),
        format!("about {expected} responses with 200"),
        format!("-d{SECONDS}s http"),
        format!("the difference is about {expected}"),
        format!("rate: {per_second}, timeUnit: \"1s\", duration: \"{SECONDS}s\""),
        format!("[\"count>={}\", \"count<={}\"]", expected - 2, expected + 2),
    ] {
        assert_has(&text(), &promise);
    }
}

#[test]
fn the_server_counts_the_requests_of_a_load_test() {
    let [.., server, keyed, metrics] = commands();
    let mut stage = Stage::default();
    stage.play(&server);
    let (allowed, denied, took) = flood(&stage, keyed.command);
    // Before another caller is counted.
    let counted = stage.output(metrics.command);
    for (result, count) in [("allowed", allowed), ("denied", denied)] {
        let line = format!("result=\"{result}\"}} {count}\n");
        assert!(counted.contains(&line), "{line} is not in\n{counted}");
    }
    let limit = Limit::read(&stage.servers[0], "/api/token-bucket");
    let most = limit.admits_in(took);
    assert!(
        (limit.burst..=most).contains(&allowed),
        "{allowed}, {took:?}"
    );

    let Limit { burst, rate } = limit;
    let text = text();
    assert_has(
        &text,
        &format!("a limit of {rate} a second with a burst of {burst}"),
    );
    assert_has(
        &text,
        &format!("the burst of {burst}, and {rate} for each second"),
    );
    assert_has(&text, "are the 1,000 requests");
}
