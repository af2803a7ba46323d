//! Processes that are forks of one. This binary has no harness, because only a process with one thread can
//! be forked.

#[path = "../support/mod.rs"]
mod support;

#[cfg(unix)]
fn main() {
    forked_processes_are_holders_of_their_own();
    println!("test result: ok. 1 passed; 0 failed");
}

#[cfg(not(unix))]
fn main() {}

/// Both forks draw numbers from the same copied state. As one holder, each would replace what the other one
/// has stated of its permits.
#[cfg(unix)]
fn forked_processes_are_holders_of_their_own() {
    use std::io::{Read, Write};

    let server = support::RedisServer::start();
    // The state that each fork copies.
    drop(std::hash::RandomState::new());
    let mut forks = [(); 2].map(|()| fork(|turns| hold(&server.url(), turns)));
    let mut held = 0;
    for _ in 0..5 {
        for turns in &mut forks {
            turns.write_all(&[0]).expect("a fork that reads");
            let mut answer = [0];
            turns.read_exact(&mut answer).expect("a fork that answers");
            held += u32::from(answer[0]);
        }
    }
    assert_eq!(held, 3);
}

/// Tries to take one of three permits in each turn, and answers how many it got. It holds them until the
/// turns end.
#[cfg(unix)]
fn hold(url: &str, mut turns: std::os::unix::net::UnixStream) {
    use std::{
        io::{Read, Write},
        time::Duration,
    };
    use tower_throttle::{Concurrency, Limiter, OnStoreFailure, Policy};

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let limiter = runtime.block_on(async {
        let permits = Concurrency::new(3).lifetime(Duration::from_secs(3_600));
        Limiter::builder()
            .store(support::stores::store_at(url))
            .policy(Policy::new("jobs", permits))
            .on_store_failure(OnStoreFailure::Deny)
            .build()
            .expect("a limiter")
    });
    let mut held = Vec::new();
    while turns.read_exact(&mut [0]).is_ok() {
        let permit = runtime.block_on(limiter.acquire("ann", Duration::ZERO));
        let permit = permit.expect("a decision");
        let answer = [u8::from(permit.is_allowed())];
        held.push(permit);
        turns.write_all(&answer).expect("a parent that reads");
    }
    std::mem::forget(held);
}

/// Runs a function in a fork of this process, and returns the other end of its stream. The fork ends with
/// the function.
#[cfg(unix)]
fn fork(run: impl FnOnce(std::os::unix::net::UnixStream)) -> std::os::unix::net::UnixStream {
    let (here, there) = std::os::unix::net::UnixStream::pair().expect("a pair of streams");
    // Sound: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            drop(here);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(there)));
            // Nothing of the parent's is dropped here: its Redis server, for example.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        child => {
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            here
        }
    }
}
