//! What signals to the demo do.

#![cfg(unix)]

use std::{io::Write, net::TcpStream};

use crate::support::{RedisServer, eventually};
use crate::{folder::Folder, in_flight::Open, process::Demo};

#[test]
fn a_process_that_is_stopped_finishes_its_responses() {
    for signal in ["INT", "TERM"] {
        let demo = Demo::start(&[]);
        let open = Open::new(&demo, "caller", 1);
        assert!(open.is_admitted());
        demo.signal(signal);
        assert_eq!(demo.end().code(), Some(0), "{signal}");
        assert!(open.read_to_its_end().contains("1 of 1 seconds"));
    }
}

/// A demo that was stopped while it held half a request of a client that stays.
fn stopping_with_half_a_request(signal: &str) -> (Demo, TcpStream) {
    let demo = Demo::start(&[]);
    let mut stream = TcpStream::connect(demo.address).expect("a connection");
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: ")
        .expect("it reads");
    // Connections before these have probably been accepted by now.
    for _ in 0..10 {
        assert_eq!(demo.get("/health", "caller").status, 200);
    }
    demo.signal(signal);
    eventually("a closed port", || {
        TcpStream::connect(demo.address).is_err()
    });
    (demo, stream)
}

#[test]
fn a_process_that_is_stopped_twice_ends_at_once() {
    for (first, second) in [("INT", "INT"), ("INT", "TERM"), ("TERM", "INT")] {
        // With 0, the first signal ended it, because it had not read the half request yet.
        eventually("an end by the second signal", || {
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

/// Permits that were given back just before the end reach Redis: the next process has them.
#[test]
fn a_process_that_is_stopped_leaves_no_permit_behind() {
    let redis = RedisServer::start();
    let folder = Folder::with_slow_limits(Some(&redis));
    let start = || Demo::start(&["--config", &folder.file()]);
    let open = |demo: &Demo, seconds| {
        let callers = (0..12).map(|caller| format!("caller-{caller}"));
        let open = callers.map(|caller| [(); 2].map(|()| Open::new(demo, &caller, seconds)));
        open.flatten().collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let demo = start();
        let responses = open(&demo, 1);
        assert!(responses.iter().all(Open::is_admitted));
        assert_eq!(demo.terminate().code(), Some(0));
    }
}
