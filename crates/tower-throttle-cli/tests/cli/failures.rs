//! What cannot be done: exit code 2, in bounded time, and without secrets.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use crate::{
    run::{File, Run, run, run_with},
    support::RedisServer,
};

fn file(url: &str) -> File {
    File::new(&format!(
        "version = 1\n[store]\nredis = {url:?}\n\
         [[policy]]\nname = \"plan\"\nquota = \"10 per hour\"\nkey = \"header:x-api-key\"\n"
    ))
}

/// All commands that ask Redis.
const LIVE: [&str; 10] = [
    "peek FILE plan k1",
    "reset FILE plan k1",
    "reset-all FILE plan",
    "top FILE",
    "control FILE",
    "ban FILE plan k1 --for 1h",
    "unban FILE plan k1",
    "override FILE plan k1 --quota \"1 per day\"",
    "clear FILE plan k1",
    "mode FILE plan off",
];

/// Runs a line with a path in place of `FILE`.
#[track_caller]
fn assert_fails_soon(line: &str, path: &str) -> Run {
    let started = Instant::now();
    let run = run(&line.replace("FILE", path)).with_code(2);
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{line}: {run:?}"
    );
    assert_eq!(run.out, "", "{line}");
    let shows = run.err.is_empty() || run.err.contains("hunter2");
    assert!(!shows, "{line}: {run:?}");
    run
}

#[test]
fn wrong_usage_is_2() {
    for line in [
        "",
        "chek a.toml",
        "check",
        "peek a.toml plan",
        "ban a.toml plan k1",
        "ban a.toml plan k1 --for \"1 fortnight\"",
        "override a.toml plan k1",
        "mode a.toml plan off --until yesterday",
        "explain a.toml --peer somewhere",
        "explain a.toml --header x-plan",
        "explain a.toml --header \"x plan: paid\"",
        "explain a.toml --reader plan=paid",
    ] {
        assert_fails_soon(line, "");
    }
    run("chek").says(&["check"]); // a proposal
}

#[test]
fn help_is_0_and_names_all_commands_and_exit_codes() {
    let words = "check diff explain schema peek reset reset-all top control ban unban override clear mode --json";
    let words: Vec<_> = words.split(' ').chain(["Exit codes"]).collect();
    run("--help").with_code(0).says(&words);
    let version = format!("tower-throttle {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run("--version").with_code(0).out, version);
}

#[test]
fn a_file_that_is_missing_or_no_file_is_2() {
    let folder = std::env::temp_dir();
    let folder = folder.to_str().expect("UTF-8");
    let diff = format!("diff {} FILE", file("redis://127.0.0.1/"));
    let lines = ["check FILE", &diff, "explain FILE"]
        .into_iter()
        .chain(LIVE);
    for path in ["/nowhere/limits.toml", folder] {
        for line in lines.clone() {
            assert_fails_soon(line, path).says(&["file-unreadable"]);
        }
        for line in LIVE {
            let run = run(&format!("{} --json", line.replace("FILE", path)));
            let json = run.with_code(2).json();
            assert_eq!(json["problems"][0]["code"], "file-unreadable");
        }
    }
}

#[test]
fn a_server_that_is_away_or_says_nothing_is_2_in_bounded_time() {
    let at = |port: u16| file(&format!("redis://:hunter2@127.0.0.1:{port}/"));
    let stopped = RedisServer::stopped(&[]);
    let away = at(stopped.port());
    for line in LIVE {
        assert_fails_soon(line, away.path()).says(&["refused"]);
    }
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = at(silent.local_addr().expect("its address").port());
    assert_fails_soon("peek FILE plan k1 --timeout 300ms", silent.path());
}

#[test]
fn a_wrong_password_or_url_is_2_and_not_printed() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    let wrong = file(&format!("redis://:hunter2@127.0.0.1:{}/", server.port()));
    for line in LIVE {
        assert_fails_soon(line, wrong.path());
    }
    let urls = "http://:hunter2@127.0.0.1/ redis://:hunter2@host:port/ hunter2";
    for url in urls.split(' ') {
        let file = file(url);
        let run = file.run("check FILE", 1);
        let shows = run.out.is_empty() || run.out.contains("hunter2");
        assert!(!shows, "{run:?}");
        assert_fails_soon("peek FILE plan k1", file.path());
        let in_code = format!("peek - plan k1 --quota \"1 per day\" --redis {url}");
        assert_fails_soon(&in_code, "");
    }
}

#[test]
fn what_is_not_in_the_file_is_2() {
    let server = RedisServer::start();
    let file = file(&server.url());
    let path = file.path();
    assert_fails_soon("peek FILE plam k1", path).says(&["no policy \"plam\"; it has plan"]);
    assert_fails_soon("peek FILE plan ip:nowhere", path);
    let secret = "peek FILE plan k1 --secret-variable NOT_SET_HERE";
    assert_fails_soon(secret, path).says(&["NOT_SET_HERE"]);
    let memory = "version = 1\n[[policy]]\nname = \"plan\"\nquota = \"1 per day\"\n";
    assert_fails_soon("peek FILE plan k1", File::new(memory).path()).says(&["names no Redis"]);
}

#[cfg(unix)]
#[test]
fn a_secret_that_is_no_text_is_2_and_not_printed() {
    use std::os::unix::ffi::OsStrExt;

    let line = "peek - plan k1 --quota \"1 per day\" --secret-variable SECRET";
    let secret = std::ffi::OsStr::from_bytes(b"hunter2\xff");
    let run = run_with(line, &[("SECRET", secret)]).with_code(2);
    let is_safe = !run.err.contains("hunter2") && run.err.contains("SECRET");
    assert!(is_safe, "{run:?}");
}
