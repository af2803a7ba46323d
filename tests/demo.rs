//! Runs the built demo as a process and drives it over real HTTP.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
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

fn example_path(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the profile");
    let name = format!("{example}{}", std::env::consts::EXE_SUFFIX);
    let path = folder.join("examples").join(name);
    assert!(
        path.is_file(),
        "there is no {}: `cargo test` builds it, and so does `cargo build --examples`",
        path.display()
    );
    path
}

fn run_to_its_end(options: &[&str]) -> Output {
    let output = Command::new(example_path("demo")).args(options).output();
    output.expect("the demo runs")
}

impl Demo {
    fn start(options: &[&str]) -> Self {
        Self::run(Command::new(example_path("demo")).args(options))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command
            .args(["--listen", "127.0.0.1:0"])
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

    fn signal(&self, name: &str) {
        let killed = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status();
        assert!(killed.expect("the command `kill`").success());
    }

    fn end(mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of the demo", || {
            status = self.child.try_wait().expect("its status");
            status.is_some()
        });
        status.expect("it ended")
    }

    fn terminate(self) -> ExitStatus {
        self.signal("TERM");
        self.end()
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
        let by = self.header("x-decided-by");
        by.is_some_and(|by| by.starts_with("store"))
    }
}

fn ask(address: SocketAddr, method: &str, path: &str, api_key: Option<&str>) -> Answer {
    let mut text = String::new();
    let mut stream = send(address, method, path, api_key);
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("an end of the head");
    answer(head, body)
}

fn send(address: SocketAddr, method: &str, path: &str, api_key: Option<&str>) -> TcpStream {
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
    stream
}

fn answer(head: &str, body: &str) -> Answer {
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

const LEAKY: &str = "/api/leaky-bucket";
const PACED: &str = "/api/paced";
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
    let routes = "/health /api/token-bucket /api/fixed-window /api/stacked /api/weighted \
                  /api/leaky-bucket /api/paced /api/sliding-window /api/sliding-log \
                  /api/concurrency /api/remaining";
    for route in routes.split(' ') {
        assert!(page.body.contains(route), "{route}");
    }
    // Self-contained: nothing of another place.
    assert!(!page.body.contains("http://") && !page.body.contains("https://"));
    assert!(!page.body.contains("/* page."), "a part of it is missing");
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
        let left = ["leaky", "paced", "sliding", "log", "in-flight"].map(|name| view.left(name));
        assert_eq!(left, [5, 11, 10, 5, 2]);
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

/// Sends 64 at once of a new caller, half of them to each, until all of them are
/// decided by Redis. No storm may admit more than `most` for the time that it took,
/// for Redis and for each process that decided by itself.
fn storm(
    demos: &[Demo; 2],
    path: &str,
    most: impl Fn(Duration) -> usize,
) -> (String, Vec<Answer>, Duration) {
    const REQUESTS: usize = 64;
    for _ in 0..3 {
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
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer.status, 200 | 429))
        );
        let by_itself = |process: &usize| {
            let mut its_own = answers.iter().skip(*process).step_by(2);
            !its_own.all(Answer::is_decided_by_store)
        };
        let by_themselves = (0..2).filter(by_itself).count();
        let (admitted, most) = (admitted(&answers), most(took) * (1 + by_themselves));
        assert!(
            admitted <= most,
            "{admitted} of {most} in {took:?}, {by_themselves} by themselves"
        );
        if by_themselves == 0 {
            return (caller, answers, took);
        }
    }
    panic!("on this machine Redis never answers 64 requests in time");
}

fn admitted(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.status == 200).count()
}

fn whole_seconds(time: Duration) -> usize {
    usize::try_from(time.as_secs()).expect("a short time")
}

#[test]
fn two_processes_on_one_redis_share_their_buckets() {
    let redis = RedisServer::start();
    let url = redis.url();
    let demos = [
        Demo::start(&["--redis", &url]),
        Demo::start(&["--redis", &url]),
    ];

    let windows = |took| 5 * (1 + whole_seconds(took) / 10);
    let (caller, answers, took) = storm(&demos, "/api/fixed-window", windows);
    assert!(
        took < Duration::from_secs(9),
        "more than a window: {took:?}"
    );
    assert_eq!(admitted(&answers), 5);
    for demo in &demos {
        let view = demo.get("/api/remaining", &caller);
        assert_eq!(view.json()["store"], "Redis");
        assert_eq!((view.left("window"), view.left("bucket")), (0, 10));
    }

    let (_, answers, _) = storm(&demos, "/api/token-bucket", |took| 10 + whole_seconds(took));
    assert!(admitted(&answers) >= 10);
    redis.assert_all_keys_expire();
}

#[test]
fn without_redis_the_demo_starts_and_decides_by_itself() {
    let mut redis = RedisServer::stopped(&[]);
    let demo = Demo::start(&["--redis", &redis.url()]);
    let statuses = (0..6).map(|_| {
        let answer = demo.get("/api/fixed-window", "caller");
        assert!(!answer.is_decided_by_store());
        answer.status
    });
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 200, 200, 200, 429]);
    assert_eq!(demo.get("/api/remaining", "caller").status, 200);
    redis.run();
    eventually("Redis decides", || {
        demo.get("/api/fixed-window", "another")
            .is_decided_by_store()
    });
}

/// The same with the buckets in memory and in Redis.
fn on_each_store(test: impl Fn(&Demo)) {
    test(&Demo::start(&[]));
    let redis = RedisServer::start();
    test(&Demo::start(&["--redis", &redis.url()]));
    redis.assert_all_keys_expire();
}

/// Asks again where Redis took longer than the deadline: then the demo decides by itself.
fn decided<T>(mut ask: impl FnMut() -> T, answers: impl Fn(&T) -> &[Answer]) -> T {
    let started = Instant::now();
    while started.elapsed() < DEADLINE {
        let asked = ask();
        if answers(&asked).iter().all(Answer::is_decided_by_store) {
            return asked;
        }
    }
    panic!("on this machine Redis never answers in time");
}

/// So many of a new caller, one after another.
fn decided_within(most: Duration, demo: &Demo, times: usize, path: &str) -> Vec<Answer> {
    let ask = || within(most, |caller| demo.get_times(times, path, caller));
    decided(ask, |answers| answers)
}

/// The seconds in `ratelimit: "policy";r=left;t=seconds`.
fn told_seconds(answer: &Answer, policy: &str, left: u64) -> u64 {
    let told = answer.header("ratelimit").expect("it");
    let seconds = told.strip_prefix(&format!("\"{policy}\";r={left};t="));
    seconds
        .and_then(|seconds| seconds.parse().ok())
        .expect(told)
}

fn assert_refused_by(policy: &str, answer: &Answer) -> Duration {
    let wait_s = told_seconds(answer, policy, 0);
    assert!(wait_s >= 1);
    assert_refused(policy, answer, wait_s);
    Duration::from_secs(wait_s)
}

/// Nobody knows when a place comes free: clients are told to try soon.
fn assert_no_place(answer: &Answer) {
    assert_eq!(answer.header("ratelimit"), Some("\"in-flight\";r=0"));
    assert_refused("in-flight", answer, 1);
}

fn assert_refused(policy: &str, answer: &Answer, wait_s: u64) {
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.header("retry-after"),
        Some(wait_s.to_string().as_str())
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let violated = answer.json()["violated-policies"].to_string();
    assert_eq!(violated, format!("[\"{policy}\"]"));
}

/// All that fit into an empty bucket, and two more.
fn assert_fills(demo: &Demo, policy: &str, path: &str, quota: &str, limit: u64, most: Duration) {
    let times = usize::try_from(limit).expect("a small limit");
    let answers = decided_within(most, demo, times + 2, path);
    let (admitted, refused) = answers.split_at(times);
    for (answer, left) in admitted.iter().zip((0..limit).rev()) {
        assert_eq!((answer.status, answer.left(policy)), (200, left));
        assert!((1..=20).contains(&told_seconds(answer, policy, left)));
        assert_eq!(answer.header("retry-after"), None);
    }
    for answer in refused {
        // A sliding window that has just begun is too full until a while after its end.
        let wait = assert_refused_by(policy, answer);
        assert!(wait <= Duration::from_secs(11), "{wait:?}");
    }
    for answer in &answers {
        assert_eq!(answer.header("ratelimit-policy"), Some(quota));
    }
}

#[test]
fn leaky_bucket_holds_five_and_leaks() {
    on_each_store(|demo| {
        let quota = "\"leaky\";q=1;w=1;tt-burst=5";
        assert_fills(demo, "leaky", LEAKY, quota, 5, ONE_UNIT);

        let (caller, answers) = decided(
            || {
                let ask = |caller: &str| (caller.to_owned(), demo.get_times(6, LEAKY, caller));
                within(ONE_UNIT, ask)
            },
            |asked| &asked.1,
        );
        // Who waits as long as they were told is admitted.
        thread::sleep(assert_refused_by("leaky", &answers[5]));
        assert_eq!(demo.get(LEAKY, &caller).status, 200);
    });
}

#[test]
fn sliding_window_admits_ten() {
    on_each_store(|demo| {
        // Within a second what the last window counted weighs as much as at its end.
        let quota = "\"sliding\";q=10;w=10";
        assert_fills(demo, "sliding", "/api/sliding-window", quota, 10, ONE_UNIT);
    });
}

#[test]
fn sliding_log_admits_five() {
    on_each_store(|demo| {
        let (quota, most) = ("\"log\";q=5;w=10", Duration::from_secs(9));
        assert_fills(demo, "log", "/api/sliding-log", quota, 5, most);
    });
}

/// How long an admitted request says it was held.
fn held(answer: &Answer) -> Duration {
    if answer.status != 200 {
        return Duration::ZERO;
    }
    Duration::from_millis(answer.json()["held_ms"].as_u64().expect("a number"))
}

/// So many at once of a new caller, in the order in which they came back, and
/// when they did. Again where the machine was so slow that a turn passed before
/// all were decided, or that two came at once: then no order is the right one.
fn paced_at_once(demo: &Demo, times: usize) -> Vec<(Answer, Duration)> {
    let half_a_turn = Duration::from_millis(250);
    for _ in 0..10 {
        let (caller, barrier) = (new_caller(), Barrier::new(times));
        let (sender, receiver) = mpsc::channel();
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..times {
                let (caller, barrier, sender) = (&caller, &barrier, sender.clone());
                scope.spawn(move || {
                    barrier.wait();
                    let answer = demo.get(PACED, caller);
                    let _ = sender.send((answer, started.elapsed()));
                });
            }
        });
        drop(sender);
        let came_back: Vec<(Answer, Duration)> = receiver.into_iter().collect();
        let is_prompt = |(answer, at): &(Answer, Duration)| {
            answer.is_decided_by_store() && *at < held(answer) + half_a_turn
        };
        if came_back.iter().all(is_prompt) {
            return came_back;
        }
    }
    panic!("this machine never answers {times} requests in time");
}

#[test]
fn paced_requests_come_back_one_after_another() {
    on_each_store(|demo| {
        let came_back = paced_at_once(demo, 12);
        for (answer, _) in &came_back {
            let quota = "\"paced\";q=2;w=1";
            assert_eq!(answer.header("ratelimit-policy"), Some(quota));
        }
        let (admitted, refused): (Vec<_>, Vec<_>) = came_back
            .iter()
            .partition(|(answer, _)| answer.status == 200);
        assert_eq!((admitted.len(), refused.len()), (11, 1));
        let wait = assert_refused_by("paced", &refused[0].0);
        assert_eq!(wait, Duration::from_secs(1));

        for ((answer, at), left) in admitted.iter().zip((0..11).rev()) {
            assert_eq!(answer.left("paced"), left, "not in the order of turns");
            assert!(*at >= held(answer), "{at:?}: {answer:?}");
        }
        assert_eq!(held(&admitted[0].0), Duration::ZERO);
        // Ten turns of half a second, which began with the first answer's.
        let last = admitted[10].1;
        assert!(last >= Duration::from_millis(4_990), "{last:?}");
    });
}

/// A request whose answer has begun and goes on until this is dropped.
struct Open {
    head: Answer,
    stream: BufReader<TcpStream>,
}

impl Open {
    fn new(demo: &Demo, caller: &str, seconds: u64) -> Self {
        let path = format!("{CONCURRENCY}?seconds={seconds}");
        let started = Instant::now();
        while started.elapsed() < DEADLINE {
            let stream = send(demo.address, "GET", &path, Some(caller));
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                let read = stream.read_line(&mut head).expect("it answers");
                assert_ne!(read, 0, "the head has no end: {head:?}");
            }
            let head = answer(head.trim_end(), "");
            if head.is_decided_by_store() {
                return Self { head, stream };
            }
        }
        panic!("on this machine Redis never answers in time");
    }

    fn is_admitted(&self) -> bool {
        self.head.status == 200
    }

    fn read_to_its_end(mut self) -> String {
        let mut body = String::new();
        self.stream.read_to_string(&mut body).expect("all of it");
        body
    }
}

const CONCURRENCY: &str = "/api/concurrency";
/// The longest there is: no test takes that long.
const OPEN_S: u64 = 30;

fn ask_for_place(demo: &Demo, caller: &str) -> Answer {
    let ask = || vec![demo.get("/api/concurrency?seconds=0", caller)];
    decided(ask, |answers| answers).remove(0)
}

fn eventually_admitted(demo: &Demo, caller: &str) {
    eventually("a free place", || Open::new(demo, caller, 0).is_admitted());
}

fn eventually_left(demo: &Demo, caller: &str, places: u64) {
    eventually("so many free places", || {
        let view = demo.get("/api/remaining", caller);
        view.status == 200 && view.left("in-flight") == places
    });
}

#[test]
fn concurrency_holds_a_place_until_the_answer_has_ended() {
    on_each_store(|demo| {
        let caller = &new_caller();
        let (long, short) = (Open::new(demo, caller, OPEN_S), Open::new(demo, caller, 1));
        assert!(long.is_admitted() && short.is_admitted());
        let body = short.read_to_its_end();
        assert!(body.contains("1 of 1 seconds"), "{body}");
        // Its place is free, and only its own.
        eventually_admitted(demo, caller);
        eventually_left(demo, caller, 1);
        let another = Open::new(demo, caller, OPEN_S);
        assert!(another.is_admitted());
        assert_no_place(&ask_for_place(demo, caller));
        drop((long, another));
    });
}

#[test]
fn concurrency_admits_two_at_a_time() {
    on_each_store(|demo| {
        let caller = &new_caller();
        let open = [(); 2].map(|()| Open::new(demo, caller, OPEN_S));
        assert!(open.iter().all(Open::is_admitted));
        for (open, left) in open.iter().zip([1, 0]) {
            let told = format!("\"in-flight\";r={left}");
            assert_eq!(open.head.header("ratelimit"), Some(told.as_str()));
            let quota = "\"in-flight\";q=2;qu=\"concurrent-requests\"";
            assert_eq!(open.head.header("ratelimit-policy"), Some(quota));
            assert_eq!(open.head.header("retry-after"), None);
        }
        assert_no_place(&ask_for_place(demo, caller));
        eventually_left(demo, caller, 0);
        // Another caller has places of their own.
        assert!(Open::new(demo, &new_caller(), 0).is_admitted());

        // One caller goes away in the middle of the answer.
        let [first, second] = open;
        drop(first);
        eventually_admitted(demo, caller);
        drop(second);
        eventually_left(demo, caller, 2);
    });
}

#[test]
fn two_processes_on_one_redis_share_what_is_in_flight() {
    let redis = RedisServer::start();
    let url = redis.url();
    let demos = [
        Demo::start(&["--redis", &url]),
        Demo::start(&["--redis", &url]),
    ];
    let (caller, barrier) = (&new_caller(), &Barrier::new(16));
    let started = Instant::now();
    let mut open: Vec<(usize, Open)> = thread::scope(|scope| {
        let ask = |n: usize| {
            let demo = &demos[n % 2];
            scope.spawn(move || {
                barrier.wait();
                (n % 2, Open::new(demo, caller, OPEN_S))
            })
        };
        let threads: Vec<_> = (0..16).map(ask).collect();
        let opened = threads.into_iter().map(|thread| thread.join());
        opened.map(|open| open.expect("an answer")).collect()
    });
    assert!(started.elapsed() < Duration::from_secs(OPEN_S - 5));
    open.retain(|(_, open)| open.is_admitted());
    assert_eq!(open.len(), 2);
    for demo in &demos {
        assert_no_place(&ask_for_place(demo, caller));
    }

    // A place that comes free in one process is free in the other.
    let (process, gone) = open.remove(0);
    drop(gone);
    eventually_admitted(&demos[1 - process], caller);
    redis.assert_all_keys_expire();
}

#[cfg(unix)]
#[test]
fn a_process_that_is_told_to_stop_lets_answers_end() {
    for signal in ["INT", "TERM"] {
        let demo = Demo::start(&[]);
        let open = Open::new(&demo, "caller", 1);
        assert!(open.is_admitted());
        demo.signal(signal);
        assert_eq!(demo.end().code(), Some(0), "{signal}");
        assert!(open.read_to_its_end().contains("1 of 1 seconds"));
    }
}

/// A demo that was told to stop while it held half a request of somebody who stays.
#[cfg(unix)]
fn stopping_with_half_a_request(signal: &str) -> (Demo, TcpStream) {
    let demo = Demo::start(&[]);
    let mut stream = TcpStream::connect(demo.address).expect("a connection");
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: ")
        .expect("it reads");
    // Whoever came before these is likely to be heard by now.
    for _ in 0..10 {
        assert_eq!(demo.get("/health", "caller").status, 200);
    }
    demo.signal(signal);
    eventually("nobody who listens", || {
        TcpStream::connect(demo.address).is_err()
    });
    (demo, stream)
}

#[cfg(unix)]
#[test]
fn a_process_that_is_told_to_stop_twice_ends_at_once() {
    for (first, second) in [("INT", "INT"), ("INT", "TERM"), ("TERM", "INT")] {
        // With 0 the first signal ended it: it had not read the half request yet.
        eventually("an end that only the second signal brought", || {
            let (demo, _stream) = stopping_with_half_a_request(first);
            demo.signal(second);
            match demo.end().code() {
                Some(0) => false,
                code => {
                    assert_eq!(code, Some(1), "{first}, {second}");
                    true
                }
            }
        });
    }
}

#[test]
fn the_job_queue_keeps_its_pace_and_ends() {
    let output = Command::new(example_path("job_queue")).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let jobs = said.lines().filter(|line| line.contains("runs job"));
    assert_eq!(jobs.count(), 12, "{said}");
}

#[cfg(feature = "tracing")]
#[test]
fn denials_are_logged_where_rust_log_asks_for_them() {
    for (wanted, expected) in [
        ("tower_throttle=debug", true),
        ("info,tower_throttle::denied=debug", true),
        ("tower_throttle::store=debug", false),
        ("info", false),
    ] {
        let mut command = Command::new(example_path("demo"));
        let mut demo = Demo::run(command.env("RUST_LOG", wanted).stderr(Stdio::piped()));
        let mut stderr = demo.child.stderr.take().expect("its standard error");
        eventually("a denial", || {
            demo.get("/api/token-bucket", "logged").status == 429
        });
        assert!(demo.terminate().success());
        let mut lines = String::new();
        stderr.read_to_string(&mut lines).expect("text");
        let is_logged = lines.contains("tower_throttle::denied");
        assert_eq!(is_logged, expected, "{wanted}: {lines}");
    }
}
