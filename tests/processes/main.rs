//! Tests that each need a process of their own: they start others, install a global
//! subscriber, change the environment, or measure what the process allocates.
//!
//! This binary has no harness. It starts itself once for each test, one after another.
//! An argument selects tests by a part of their names; `--nocapture` shows their output.

mod allocations;
#[cfg(feature = "tracing")]
mod client_log;
mod control;
mod killed;
mod other;
mod permit_storm;
#[cfg(feature = "tracing")]
mod secrets;
#[path = "../support/mod.rs"]
mod support;
mod two_processes;

use std::{
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use tokio::runtime::Runtime;

const TESTS: &[(&str, fn())] = &[
    ("allocations", allocations::allocations),
    #[cfg(feature = "tracing")]
    ("client_log", || on_threads(client_log::client_log())),
    (
        "control",
        control::an_override_of_one_process_is_felt_in_all,
    ),
    ("killed", killed::killed),
    ("permit_storm", permit_storm::permit_storm),
    #[cfg(feature = "tracing")]
    ("secrets", || on_threads(secrets::secrets())),
    ("two_processes", two_processes::two_processes),
];

#[cfg(feature = "tracing")]
fn on_threads(test: impl Future<Output = ()>) {
    Runtime::new().expect("a runtime").block_on(test);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--run", name] => run(name),
        ["--other-process", "control", url] => control::other_process(url),
        ["--other-process", "killed", url, quota] => killed::other_process(url, quota),
        ["--other-process", "permit_storm", url, seed] => permit_storm::other_process(url, seed),
        ["--other-process", "two_processes", url, window_s] => {
            two_processes::other_process(url, window_s);
        }
        _ => return run_each(&arguments),
    }
    ExitCode::SUCCESS
}

fn run(name: &str) {
    let (_, test) = TESTS
        .iter()
        .find(|(other, _)| *other == name)
        .expect("a test of this name");
    test();
}

/// Runs each test that the arguments select in a process of its own.
fn run_each(arguments: &[String]) -> ExitCode {
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let is_part = |part: &&String| !part.starts_with('-');
    let parts: Vec<_> = arguments.iter().filter(is_part).collect();
    let is_selected =
        |name: &&str| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()));
    let tests: Vec<&str> = TESTS
        .iter()
        .map(|(name, _)| *name)
        .filter(is_selected)
        .collect();
    if has("--list") {
        tests.iter().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let (mut failed, started) = (0, Instant::now());
    for name in &tests {
        let mut test = Command::new(std::env::current_exe().expect("this program"));
        test.args(["--run", name]);
        let is_shown = has("--nocapture");
        if !is_shown {
            test.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let child = test.spawn().expect("another process");
        let output = child.wait_with_output().expect("its output");
        let is_ok = output.status.success();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        if !is_ok {
            failed += 1;
            print!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {} passed; {failed} failed; finished in {:.2}s\n",
        tests.len() - failed,
        started.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(failed > 0))
}
