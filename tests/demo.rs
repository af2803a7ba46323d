//! Runs the built demo as a process and drives it over real HTTP.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::Barrier,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{DEADLINE, RedisServer, eventually};
use serde_json::Value;

/// A demo process, killed when dropped.
struct Demo {
    child: Child,
    address: SocketAddr,
}

fn demo_path() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the profile");
    let name = format!("demo{}", std::env::consts::EXE_SUFFIX);
    let path = folder.join("examples").join(name);
    assert!(
        path.is_file(),
        "there is no {}: `cargo test` builds it, and so does `cargo build --example demo`",
        path.display()
    );
    path
}

fn run_to_its_end(options: &[&str]) -> Output {
    let output = Command::new(demo_path()).args(options).output();
    output.expect("the demo runs")
}

impl Demo {
    fn start(options: &[&str]) -> Self {
        let mut child = Command::new(demo_path())
            .args(["--listen", "127.0.0.1:0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the demo starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("its standard output");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a line of it");
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("it says no address: {line:?}"));
        Self { child, address }
    }

    fn get(&self, path: &str, api_key: &str) -> Answer {
        ask(self.address, "GET", path, Some(api_key))
    }

    fn get_times(&self, times: usize, path: &str, api_key: &str) -> Vec<Answer> {
        (0..times).map(|_| self.get(path, api_key)).collect()
    }

    fn post(&self, path: &str, api_key: &str) -> Answer {
        ask(self.address, "POST", path, Some(api_key))
    }

    fn terminate(mut self) -> ExitStatus {
        let killed = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .status();
        assert!(killed.expect("the command `kill`").success());
        let mut status = None;
        eventually("the end of the demo", || {
            status = self.child.try_wait().expect("its status");
            status.is_some()
        });
        status.expect("it ended")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut with_name = self.headers.iter().filter(|header| header.0 == name);
        let value = with_name.next().map(|header| header.1.as_str());
        assert!(with_name.next().is_none(), "{name} is there twice");
        value
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// What the body says is left in a policy.
    fn left(&self, policy: &str) -> u64 {
        let json = self.json();
        let policies = json["policies"].as_array().expect("policies");
        let found = policies.iter().find(|found| found["name"] == policy);
        found.expect("the policy")["remaining"]
            .as_u64()
            .expect("a number")
    }

    fn is_decided_by_store(&self) -> bool {
        self.status == 429 || self.json()["decided_by"] == "store"
    }
}

fn ask(address: SocketAddr, method: &str, path: &str, api_key: Option<&str>) -> Answer {
    let api_key = api_key.map_or_else(String::new, |key| format!("x-api-key: {key}\r\n"));
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{api_key}\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE).expect("a connection");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a time limit");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");

    let (head, body) = text.split_once("\r\n\r\n").expect("an end of the head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a header");
        (name.to_ascii_lowercase(), value.to_owned())
    };
    Answer {
        status: status.and_then(|code| code.parse().ok()).expect("a status"),
        headers: lines.map(header).collect(),
        body: body.to_owned(),
    }
}

fn new_caller() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("caller-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Asks as a new caller, again where the machine was so slow that units came
/// back meanwhile: then nobody can say what the answers should have been.
fn within<T>(most: Duration, mut ask: impl FnMut(&str) -> T) -> T {
    for _ in 0..20 {
        let started = Instant::now();
        let answers = ask(&new_caller());
        if started.elapsed() < most {
            return answers;
        }
    }
    panic!("this machine never does it within {most:?}");
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

const ONE_UNIT: Duration = Duration::from_millis(950);

#[test]
fn token_bucket_admits_ten_and_says_what_is_left() {
    let demo = Demo::start(&[]);
    let answers = within(ONE_UNIT, |caller| {
        demo.get_times(12, "/api/token-bucket", caller)
    });

    assert_eq!(statuses(&answers[..10]), [200; 10]);
    assert_eq!(statuses(&answers[10..]), [429; 2]);
    for (answer, left) in answers.iter().zip((0..10).rev()) {
        assert_eq!(answer.left("bucket"), left);
        let (said, within_s) = (answer.header("ratelimit").expect("it"), left.max(1));
        assert_eq!(said, format!("\"bucket\";r={left};t={within_s}"));
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
        let said = answer.header("ratelimit").expect("it");
        let within_s = said.strip_prefix(&format!("\"window\";r={left};t="));
        let within_s: u64 = within_s.and_then(|s| s.parse().ok()).expect(said);
        assert!((1..=10).contains(&within_s), "{said}");
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
    // Only the policy that refused is named, and the other one was not charged.
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
        // What is asked, the status, what is left.
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
        let said = answer.header("ratelimit").expect("it");
        let item = format!("\"weight\";r={left}");
        assert!(
            said == item || said.starts_with(&format!("{item};")),
            "{query}: {said}"
        );
        assert_eq!(
            answer.header("retry-after").is_some(),
            *status == 429,
            "{query}"
        );
    }
    assert!(answers[3].body.contains("Cost 21 exceeds policy"));
    // The wrong method is no use of the route.
    assert_eq!(demo.get("/api/weighted", "caller").status, 405);
}

#[test]
fn callers_are_told_apart_by_key_else_by_address() {
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
    let routes = "/health /api/token-bucket /api/fixed-window /api/stacked /api/weighted";
    for route in routes.split(' ') {
        assert!(page.body.contains(route), "{route}");
    }
    // Self-contained: nothing of another place.
    assert!(!page.body.contains("http://") && !page.body.contains("https://"));
    assert_eq!(demo.get("/api/nothing", "caller").status, 404);
}

#[test]
fn the_view_takes_nothing() {
    let demo = Demo::start(&[]);
    for _ in 0..30 {
        let view = demo.get("/api/remaining", "caller");
        assert_eq!(view.json()["store"], "memory");
        let left = ["bucket", "window", "burst", "minute", "weight"].map(|name| view.left(name));
        assert_eq!(left, [10, 5, 5, 20, 20]);
    }
}

#[test]
fn a_wrong_command_line_is_explained() {
    for options in [
        &["--wat"][..],
        &["--redis"],
        &["--listen", "--redis"],
        &["x"],
    ] {
        let output = run_to_its_end(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains("--listen ADDR") && said.contains("--redis URL"),
            "{said}"
        );
    }
    let output = run_to_its_end(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("--redis URL"));

    let demo = Demo::start(&[]);
    let output = run_to_its_end(&["--listen", &demo.address.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot listen on"), "{said}");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_it_well() {
    let demo = Demo::start(&[]);
    assert_eq!(demo.get("/health", "caller").status, 200);
    assert_eq!(demo.terminate().code(), Some(0));
}

/// 64 at once, half of them to each; all of them decided by Redis.
fn storm(demos: &[Demo; 2], path: &str) -> (String, Vec<Answer>, Duration) {
    const REQUESTS: usize = 64;
    for _ in 0..20 {
        let (caller, barrier) = (new_caller(), Barrier::new(REQUESTS));
        let started = Instant::now();
        let answers: Vec<Answer> = thread::scope(|scope| {
            let ask = |n: usize| {
                let (caller, barrier) = (&caller, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    demos[n % 2].get(path, caller)
                })
            };
            let threads: Vec<_> = (0..REQUESTS).map(ask).collect();
            let answer =
                |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("an answer");
            threads.into_iter().map(answer).collect()
        });
        let took = started.elapsed();
        // Where Redis took longer than the deadline, the demo lets callers in.
        if answers.iter().all(Answer::is_decided_by_store) {
            return (caller, answers, took);
        }
    }
    panic!("on this machine Redis never answers 64 requests in time");
}

#[test]
fn two_processes_on_one_redis_share_their_buckets() {
    let redis = RedisServer::start();
    let url = redis.url();
    let demos = [
        Demo::start(&["--redis", &url]),
        Demo::start(&["--redis", &url]),
    ];
    let admitted =
        |answers: &[Answer]| answers.iter().filter(|answer| answer.status == 200).count();

    let (caller, answers, took) = storm(&demos, "/api/fixed-window");
    assert!(
        took < Duration::from_secs(9),
        "more than a window: {took:?}"
    );
    assert_eq!(admitted(&answers), 5);
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 429))
    );
    for demo in &demos {
        let view = demo.get("/api/remaining", &caller);
        assert_eq!(view.json()["store"], "Redis");
        assert_eq!((view.left("window"), view.left("bucket")), (0, 10));
    }

    let (_, answers, took) = storm(&demos, "/api/token-bucket");
    let most = 10 + usize::try_from(took.as_secs()).expect("a short time");
    assert!(
        (10..=most).contains(&admitted(&answers)),
        "{}",
        admitted(&answers)
    );
    redis.assert_all_keys_expire();
}

#[test]
fn without_redis_the_demo_starts_and_lets_callers_in() {
    let redis = RedisServer::stopped(&[]);
    let demo = Demo::start(&["--redis", &redis.url()]);
    let answer = demo.get("/api/fixed-window", "caller");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("ratelimit"), None);
    assert!(!answer.is_decided_by_store());
    assert_eq!(demo.get("/api/remaining", "caller").status, 503);
}
