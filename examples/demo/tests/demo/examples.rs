//! What the heads of the examples do not show: examples as processes, over HTTP.

use std::process::Command;

use crate::process::{Answer, Demo, example_path, read, send_with};

fn start(example: &str) -> Demo {
    Demo::run(&mut Command::new(example_path(example)))
}

fn ask(demo: &Demo, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    read(send_with(demo.address, method, path, fields, body))
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

#[test]
fn a_query_is_charged_what_it_cost_and_not_run_if_that_is_too_much() {
    for (query, status, cost) in [
        ("{ me { name } }", 200, 1),
        (
            "{ users(first: 40) { name friends(first: 3) { name } } }",
            200,
            161,
        ),
        (
            "{ users(first: 4) { name } posts(first: 5) { title } }",
            200,
            10,
        ),
        (
            "{ users(first: 40) { name friends(first: 30) { name } } }",
            400,
            1,
        ),
    ] {
        let demo = start("graphql_cost");
        let response = ask(&demo, "POST", "/graphql", &[], query);
        assert_eq!(response.status, status, "{query}");
        let json = response.json();
        match status {
            200 => assert_eq!(json["extensions"]["cost"]["actual"], cost, "{query}"),
            _ => assert!(
                json["errors"][0]["message"]
                    .to_string()
                    .contains("costs 1241 points")
            ),
        }
        assert_eq!(response.header("x-query-cost"), None);
        let left = response.header("ratelimit").expect("it");
        let start = format!("\"points\";r={};", 1_000 - cost);
        assert!(left.starts_with(&start), "{left} after {query}");
    }
}

#[test]
fn a_completion_without_a_prompt_is_free() {
    let demo = start("llm_proxy");
    let key = ("x-api-key", "k1");
    let tokens = [key, ("x-max-tokens", "400")];
    assert_eq!(ask(&demo, "POST", "/complete", &tokens, "").status, 400);
    let left = ask(&demo, "GET", "/left", &[key], "");
    assert_eq!(left.body, "1000 tokens left\n");
}
