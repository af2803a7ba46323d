//! What cannot be done: exit code 2, in bounded time, and without secrets.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use crate::{
    run::{File, Run, run},
    support::RedisServer,
};

fn file(url: &str) -> File {
    File::new(&format!(
        "version = 1\n[store]\nredis = {url:?}\n\
         [[policy]]\nname = \"plan\"\nquota = \"10 per hour\"\nkey = \"header:x-api-key\"\n"
    ))
}

/// All commands that ask Redis.
fn live(file: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["peek", file, "plan", "k1"],
        vec!["reset", file, "plan", "k1"],
        vec!["top", file],
        vec!["control", file],
        vec!["ban", file, "plan", "k1", "--for", "1h"],
        vec!["unban", file, "plan", "k1"],
        vec!["override", file, "plan", "k1", "--quota", "1 per day"],
        vec!["clear", file, "plan", "k1"],
        vec!["mode", file, "plan", "off"],
    ]
}

#[track_caller]
fn assert_fails_soon(arguments: &[&str]) -> Run {
    let started = Instant::now();
    let run = run(arguments).with_code(2);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{arguments:?}: {run:?}"
    );
    assert_eq!(run.out, "", "{arguments:?}");
    assert!(
        !run.err.is_empty() && !run.err.contains("hunter2"),
        "{arguments:?}: {run:?}"
    );
    run
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &[][..],
        &["chek", "a.toml"],
        &["check"],
        &["peek", "a.toml", "plan"],
        &["ban", "a.toml", "plan", "k1"],
        &["ban", "a.toml", "plan", "k1", "--for", "1 fortnight"],
        &["override", "a.toml", "plan", "k1"],
        &["mode", "a.toml", "plan", "off", "--until", "yesterday"],
        &["explain", "a.toml", "--peer", "somewhere"],
    ] {
        let run = run(arguments).with_code(2);
        assert!(
            run.out.is_empty() && !run.err.is_empty(),
            "{arguments:?}: {run:?}"
        );
    }
    assert!(run(&["chek"]).err.contains("check"), "a proposal");
}

#[test]
fn help_is_0_and_names_all_commands_and_exit_codes() {
    let help = run(&["--help"]).with_code(0).out;
    for word in [
        "check",
        "diff",
        "explain",
        "schema",
        "peek",
        "reset",
        "top",
        "control",
        "ban",
        "unban",
        "override",
        "clear",
        "mode",
        "--json",
        "Exit codes",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let version = run(&["--version"]).with_code(0).out;
    assert_eq!(
        version,
        format!("tower-throttle {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_file_that_is_missing_or_no_file_is_2() {
    let folder = std::env::temp_dir();
    let folder = folder.to_str().expect("UTF-8");
    let file = file("redis://127.0.0.1/");
    for path in ["/nowhere/limits.toml", folder] {
        let check = assert_fails_soon(&["check", path]);
        assert!(check.err.contains("file-unreadable"), "{check:?}");
        assert_fails_soon(&["diff", file.path(), path]);
        assert_fails_soon(&["explain", path]);
        for mut arguments in live(path) {
            assert_fails_soon(&arguments);
            arguments.push("--json");
            let json = run(&arguments).with_code(2).json();
            assert_eq!(json["problems"][0]["code"], "file-unreadable");
        }
    }
}

#[test]
fn a_server_that_is_away_is_2_in_bounded_time() {
    let server = RedisServer::stopped(&[]);
    let url = format!("redis://:hunter2@127.0.0.1:{}/", server.port());
    let file = file(&url);
    for arguments in live(file.path()) {
        let run = assert_fails_soon(&arguments);
        assert!(run.err.contains("refused"), "{run:?}");
    }
}

#[test]
fn a_server_that_says_nothing_is_2_in_bounded_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("its address").port();
    let file = file(&format!("redis://:hunter2@127.0.0.1:{port}/"));
    let peek = ["peek", file.path(), "plan", "k1", "--timeout", "300ms"];
    assert_fails_soon(&peek);
}

#[test]
fn a_wrong_password_or_url_is_2_and_not_printed() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    let url = format!("redis://:hunter2@127.0.0.1:{}/", server.port());
    for arguments in live(file(&url).path()) {
        assert_fails_soon(&arguments);
    }
    for url in [
        "http://:hunter2@127.0.0.1/",
        "redis://:hunter2@host:port/",
        "hunter2",
    ] {
        let file = file(url);
        let run = run(&["check", file.path()]).with_code(1);
        assert!(
            !run.out.is_empty() && !run.out.contains("hunter2"),
            "{run:?}"
        );
        assert_fails_soon(&["peek", file.path(), "plan", "k1"]);
        assert_fails_soon(&[
            "peek",
            "-",
            "plan",
            "k1",
            "--quota",
            "1 per day",
            "--redis",
            url,
        ]);
    }
}

#[test]
fn what_is_not_in_the_file_is_2() {
    let server = RedisServer::start();
    let file = file(&server.url());
    let unknown = assert_fails_soon(&["peek", file.path(), "plam", "k1"]);
    assert!(
        unknown.err.contains("no policy \"plam\"; it has plan"),
        "{unknown:?}"
    );
    assert_fails_soon(&["peek", file.path(), "plan", "ip:nowhere"]);
    let peek = ["peek", file.path(), "plan", "k1"];
    let secret = [&peek[..], &["--secret-variable", "NOT_SET_HERE"]].concat();
    assert!(assert_fails_soon(&secret).err.contains("NOT_SET_HERE"));
    let memory = "version = 1\n[[policy]]\nname = \"plan\"\nquota = \"1 per day\"\n";
    let run = assert_fails_soon(&["peek", File::new(memory).path(), "plan", "k1"]);
    assert!(run.err.contains("names no Redis"), "{run:?}");
}
