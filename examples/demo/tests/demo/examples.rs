//! What the heads of the examples do not show: examples as processes, over HTTP.

use std::{net::TcpStream, process::Command};

use crate::process::{Answer, Demo, example_path, read, send_with};

fn start(example: &str) -> Demo {
    Demo::run(&mut Command::new(example_path(example)))
}

/// Sends a request, and does not wait for its answer. Its head has a line for each field.
fn send(demo: &Demo, head: &str, body: &str) -> TcpStream {
    let (first, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut words = first.split(' ');
    let [method, path] = [(); 2].map(|()| words.next().expect("a word"));
    let fields = fields
        .split("\r\n")
        .filter_map(|line| line.split_once(": "));
    let fields: Vec<_> = fields.collect();
    send_with(demo.address, method, path, &fields, body)
}

fn ask(demo: &Demo, head: &str, body: &str) -> Answer {
    read(send(demo, head, body))
}

#[test]
fn a_misspelled_limit_in_the_environment_ends_the_process() {
    let mut command = Command::new(example_path("env"));
    let output = command.env("LIMITS", "2 per minuet").output();
    let output = output.expect("the example runs");
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).expect("a text");
    let expected = "LIMITS: quota \"2 per minuet\": no unit \"minuet\"; did you mean \"minute\"?";
    assert_eq!(message.trim_end(), expected);
}

const LOGIN: &str = "POST /login HTTP/1.1";

#[test]
fn a_login_counts_wrong_passwords_only() {
    let demo = start("login");
    let log_in = |credentials: &str| ask(&demo, LOGIN, credentials);
    for _ in 0..20 {
        let right = log_in("ann:open sesame");
        assert_eq!((right.status, right.body.as_str()), (200, "welcome, ann\n"));
        let left = right.header("ratelimit").expect("it");
        assert!(left.starts_with("\"wrong-passwords\";r=5;"), "{left}");
    }
    for left in (0..5).rev() {
        let wrong = log_in("ann:guess");
        assert_eq!(wrong.status, 401);
        let shown = wrong.header("ratelimit").expect("it");
        let start = format!("\"wrong-passwords\";r={left};");
        assert!(shown.starts_with(&start), "{shown}");
        if left > 0 {
            assert_eq!(log_in("ann:open sesame").status, 200);
        }
    }
    let locked_out = log_in("ann:open sesame");
    assert_eq!(locked_out.status, 429);
    let wait_s = locked_out.header("retry-after").expect("a wait");
    assert!((1..=900).contains(&wait_s.parse::<u64>().expect("a number")));
}

#[test]
fn a_scanner_is_banned_after_its_strikes_and_others_are_not() {
    let demo = start("scanner_ban");
    let get = |path: &str, client: &str| {
        ask(
            &demo,
            &format!("GET {path} HTTP/1.1\r\nx-forwarded-for: {client}"),
            "",
        )
    };
    let [scanner, visitor] = ["203.0.113.1", "203.0.113.2"];
    for _ in 0..19 {
        assert_eq!(get("/wp-login.php", scanner).status, 404);
    }
    assert_eq!(get("/", scanner).status, 200);
    assert_eq!(get("/.env", scanner).status, 404, "the last strike");
    let banned = get("/", scanner);
    assert_eq!(banned.status, 429);
    let wait_s = banned.header("retry-after").expect("a wait");
    let wait_s: u64 = wait_s.parse().expect("a number");
    assert!((290..=300).contains(&wait_s), "{wait_s}");
    let shown = banned.header("ratelimit").expect("it");
    assert_eq!(shown, format!("\"scanners\";r=0;t={wait_s}"));
    let problem = banned.json();
    let kind = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
    assert_eq!(problem["type"], kind);
    assert_eq!(problem["violated-policies"][0], "scanners");
    assert_eq!(get("/", visitor).status, 200);
    assert_eq!(get("/favicon.ico", visitor).status, 404);
}

const QUERY: &str = "POST /graphql HTTP/1.1";

#[test]
fn a_query_is_charged_what_it_cost() {
    for (query, cost) in [
        ("{ me { name } }", 1),
        ("{ users(first: 2) { name } }", 3),
        (
            "{ users(first: 40) { name friends(first: 3) { name } } }",
            161,
        ),
        ("{ users(first: 4) { name } posts(first: 5) { title } }", 10),
    ] {
        let demo = start("graphql_cost");
        let response = ask(&demo, QUERY, query);
        assert_eq!(response.status, 200);
        assert_eq!(
            response.json()["extensions"]["cost"]["actual"],
            cost,
            "{query}"
        );
        assert_eq!(response.header("x-query-cost"), None);
        let left = response.header("ratelimit").expect("it");
        let start = format!("\"points\";r={};", 1_000 - cost);
        assert!(left.starts_with(&start), "{left} after {query}");
    }
}

#[test]
fn a_query_that_costs_too_much_is_not_run() {
    let demo = start("graphql_cost");
    let query = "{ users(first: 40) { name friends(first: 30) { name } } }";
    let response = ask(&demo, QUERY, query);
    assert_eq!(response.status, 400);
    let error = response.json()["errors"][0]["message"].to_string();
    assert!(error.contains("costs 1241 points"), "{error}");
    let left = response.header("ratelimit").expect("it");
    assert!(left.starts_with("\"points\";r=999;"), "{left}");
}

#[test]
fn a_completion_without_a_prompt_is_free() {
    let demo = start("llm_proxy");
    let head = "POST /complete HTTP/1.1\r\nx-api-key: k1\r\nx-max-tokens: 400";
    assert_eq!(ask(&demo, head, "").status, 400);
    let left = ask(&demo, "GET /left HTTP/1.1\r\nx-api-key: k1", "");
    assert_eq!(left.body, "1000 tokens left\n");
}
