//! The demo as a process, and an HTTP client that shows whole answers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::AtomicU32,
};

use serde_json::Value;

use crate::folder::Folder;
use crate::support::prelude::*;

pub(crate) fn new_caller() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("caller-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A demo process, killed when dropped.
pub(crate) struct Demo {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// The folder of its file.
    _folder: Option<Folder>,
}

pub(crate) fn demo() -> Command {
    Command::new(env!("CARGO_BIN_EXE_demo"))
}

/// Returns the path of an example of the crate.
pub(crate) fn example_path(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the folder of the profile");
    let name = format!("{example}{}", std::env::consts::EXE_SUFFIX);
    let path = folder.join("examples").join(name);
    assert!(
        path.is_file(),
        "there is no {}: `cargo build --examples` builds it",
        path.display()
    );
    path
}

pub(crate) fn run_to_its_end(options: &[&str]) -> Output {
    let output = demo().args(options).output();
    output.expect("the demo runs")
}

impl Demo {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::run(demo().args(options))
    }

    /// Starts a demo whose buckets take hours to refill, in memory or in this server.
    pub(crate) fn slow(redis: Option<&RedisServer>) -> Self {
        let folder = Folder::with_slow_limits(redis);
        let mut demo = Self::start(&["--config", &folder.file()]);
        demo._folder = Some(folder);
        demo
    }

    pub(crate) fn run(command: &mut Command) -> Self {
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
        Self {
            child,
            address,
            _folder: None,
        }
    }

    pub(crate) fn get(&self, path: &str, api_key: &str) -> Answer {
        ask(self.address, "GET", path, Some(api_key))
    }

    pub(crate) fn get_times(&self, times: usize, path: &str, api_key: &str) -> Vec<Answer> {
        (0..times).map(|_| self.get(path, api_key)).collect()
    }

    pub(crate) fn post(&self, path: &str, api_key: &str) -> Answer {
        ask(self.address, "POST", path, Some(api_key))
    }

    pub(crate) fn signal(&self, name: &str) {
        let killed = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status();
        assert!(killed.expect("the command `kill`").success());
    }

    pub(crate) fn end(mut self) -> ExitStatus {
        let mut status = None;
        eventually("the end of the demo", || {
            status = self.child.try_wait().expect("its status");
            status.is_some()
        });
        status.expect("it ended")
    }

    pub(crate) fn terminate(self) -> ExitStatus {
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
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut with_name = self.headers.iter().filter(|header| header.0 == name);
        let value = with_name.next().map(|header| header.1.as_str());
        assert!(with_name.next().is_none(), "{name} is there twice");
        value
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// Returns what remains in a policy, as the body shows it.
    pub(crate) fn left(&self, policy: &str) -> u64 {
        let json = self.json();
        let policies = json["policies"].as_array().expect("policies");
        let found = policies.iter().find(|found| found["name"] == policy);
        found.expect("the policy")["remaining"]
            .as_u64()
            .expect("a number")
    }

    pub(crate) fn is_decided_by_store(&self) -> bool {
        let by = self.header("x-decided-by");
        by.is_some_and(|by| by.starts_with("store"))
    }
}

pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, api_key: Option<&str>) -> Answer {
    read(send(address, method, path, api_key))
}

/// Reads the answer to a request.
pub(crate) fn read(mut stream: TcpStream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("an end of the head");
    answer(head, body)
}

pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    api_key: Option<&str>,
) -> TcpStream {
    let fields: Vec<_> = api_key.map(|key| ("x-api-key", key)).into_iter().collect();
    send_with(address, method, path, &fields, "")
}

/// Sends a request with these header fields and this body.
pub(crate) fn send_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    let host = match fields.iter().any(|(name, _)| *name == "host") {
        true => String::new(),
        false => format!("host: {address}\r\n"),
    };
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{host}{fields}\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE).expect("a connection");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a time limit");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

pub(crate) fn answer(head: &str, body: &str) -> Answer {
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

/// Changes the control document through the admin API.
pub(crate) fn change(demo: &Demo, action: &str, order: &Value) -> Answer {
    let fields = [
        ("content-type", "application/json"),
        ("x-tower-throttle", "1"),
    ];
    let path = format!("/admin/api/v1/{action}");
    let answer = read(send_with(
        demo.address,
        "POST",
        &path,
        &fields,
        &order.to_string(),
    ));
    assert_eq!(answer.status, 200, "{action}: {answer:?}");
    answer
}
