//! What signals to the demo do.

#![cfg(unix)]

use crate::support::RedisServer;
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
