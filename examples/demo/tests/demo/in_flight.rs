//! Permits that are held until a response has ended.

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpStream,
};

use crate::support::eventually;
use crate::{
    asking::{assert_denied, on_each_store},
    process::{Answer, Demo, answer, new_caller, send},
};

/// The release time is unknown, so clients are asked to retry soon.
fn assert_no_place(answer: &Answer) {
    assert_eq!(answer.header("ratelimit"), Some("\"in-flight\";r=0"));
    assert_denied("in-flight", answer, 1);
}

/// A request whose response has begun, and continues until this is dropped.
pub(crate) struct Open {
    head: Answer,
    stream: BufReader<TcpStream>,
}

impl Open {
    pub(crate) fn new(demo: &Demo, caller: &str, seconds: u64) -> Self {
        let path = format!("{CONCURRENCY}?seconds={seconds}");
        let stream = send(demo.address, "GET", &path, Some(caller));
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = stream.read_line(&mut head).expect("it answers");
            assert_ne!(read, 0, "the head has no end: {head:?}");
        }
        let head = answer(head.trim_end(), "");
        assert!(head.is_decided_by_store(), "{head:?}");
        Self { head, stream }
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.head.status == 200
    }

    pub(crate) fn read_to_its_end(mut self) -> String {
        let mut body = String::new();
        self.stream.read_to_string(&mut body).expect("all of it");
        body
    }
}

const CONCURRENCY: &str = "/api/concurrency";
/// The longest response: no test takes that long.
const OPEN_S: u64 = 30;

fn ask_for_place(demo: &Demo, caller: &str) -> Answer {
    demo.get("/api/concurrency?seconds=0", caller)
}

fn eventually_admitted(demo: &Demo, caller: &str) {
    eventually("a free permit", || Open::new(demo, caller, 0).is_admitted());
}

fn eventually_left(demo: &Demo, caller: &str, places: u64) {
    eventually("free permits", || {
        let view = demo.get("/api/remaining", caller);
        view.status == 200 && view.left("in-flight") == places
    });
}

#[test]
fn concurrency_admits_two_at_a_time() {
    on_each_store(|demo| {
        let caller = &new_caller();
        let open = [(); 2].map(|()| Open::new(demo, caller, OPEN_S));
        assert!(open.iter().all(Open::is_admitted));
        for (open, left) in open.iter().zip([1, 0]) {
            let reported = format!("\"in-flight\";r={left}");
            assert_eq!(open.head.header("ratelimit"), Some(reported.as_str()));
            let quota = "\"in-flight\";q=2;qu=\"concurrent-requests\"";
            assert_eq!(open.head.header("ratelimit-policy"), Some(quota));
            assert_eq!(open.head.header("retry-after"), None);
        }
        assert_no_place(&ask_for_place(demo, caller));
        eventually_left(demo, caller, 0);
        // Another caller has permits of its own.
        assert!(Open::new(demo, &new_caller(), 0).is_admitted());

        // One client leaves in the middle of its response.
        let [first, second] = open;
        drop(first);
        eventually_admitted(demo, caller);
        drop(second);
        eventually_left(demo, caller, 2);
    });
}
