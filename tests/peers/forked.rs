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

/// Two forks draw numbers from the same copied state. As one holder, the second one would replace the
/// permits of the first.
#[cfg(unix)]
fn forked_processes_are_holders_of_their_own() {
    let server = support::RedisServer::start();
    let url = server.url();
    // The state that each fork copies.
    drop(std::hash::RandomState::new());
    let held = [(); 3].map(|()| in_fork(|| hold_all(&url)));
    assert_eq!(held, [3, 0, 0]);
}

/// Takes all permits that are left, and returns how many. They are never released.
#[cfg(unix)]
fn hold_all(url: &str) -> i32 {
    use std::time::Duration;
    use tower_throttle::{Concurrency, Limiter, OnStoreFailure, Policy, RedisStore};

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::builder().timeout(support::DEADLINE);
        let permits = Concurrency::new(3).lifetime(Duration::from_secs(3_600));
        let limiter = Limiter::builder()
            .store(store.connect(url).expect("a store"))
            .policy(Policy::new("jobs", permits))
            .on_store_failure(OnStoreFailure::Deny)
            .build()
            .expect("a limiter");
        let mut held = 0;
        loop {
            let permit = limiter.acquire("ann", Duration::ZERO).await;
            let permit = permit.expect("a decision");
            if !permit.is_allowed() {
                return held;
            }
            std::mem::forget(permit);
            held += 1;
        }
    })
}

/// Runs a function in a fork of this process, and returns its result: a byte.
#[cfg(unix)]
fn in_fork(run: impl FnOnce() -> i32) -> i32 {
    /// The fork has panicked.
    const PANICKED: i32 = 255;

    // Sound: this process has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        // Nothing of the parent's is dropped here: its Redis server, for example.
        unsafe { libc::_exit(result.unwrap_or(PANICKED)) }
    }
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "{}", std::io::Error::last_os_error());
    assert!(libc::WIFEXITED(status), "{status}");
    let result = libc::WEXITSTATUS(status);
    assert_ne!(result, PANICKED, "the fork panicked");
    result
}
