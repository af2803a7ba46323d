//! A limiter without HTTP: for jobs, sockets, and calls to other services.
//!
//! It needs no server, prints what is decided, and ends:
//!
//! ```text
//! cargo run --example without_http
//! # mail 1 of Ann: allowed; left: 2 of 3 burst, 99 of 100 day
//! # mail 2 of Ann: allowed; left: 1 of 3 burst, 98 of 100 day
//! # mail 3 of Ann: allowed; left: 0 of 3 burst, 97 of 100 day
//! # mail 4 of Ann: denied; left: 0 of 3 burst, 97 of 100 day; wait ..
//! # mail 1 of Bob: allowed; left: 2 of 3 burst, 99 of 100 day
//! # 2 more of Bob at once: allowed; left: 0 of 3 burst, 97 of 100 day
//! # 50 of Bob at once: never; left: 0 of 3 burst, 97 of 100 day
//! # a look at Ann: denied; left: 0 of 3 burst, 97 of 100 day; wait ..
//! # Ann after a reset: allowed; left: 3 of 3 burst, 100 of 100 day
//! ```

use std::error::Error;

use tower_throttle::{Decision, FixedWindow, Limiter, MemoryStore, Policy, TokenBucket};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Both policies have room, and both are charged; or neither is.
    let limiter = Limiter::builder()
        .store(MemoryStore::new())
        .policy(Policy::new("burst", TokenBucket::per_hour(3)))
        .policy(Policy::new("day", FixedWindow::per_day(100)))
        .build()?;

    for n in 1..=4 {
        print(&format!("mail {n} of Ann"), &limiter.check("ann").await?);
    }
    print("mail 1 of Bob", &limiter.check("bob").await?);
    print("2 more of Bob at once", &limiter.check_n("bob", 2).await?);
    print("50 of Bob at once", &limiter.check_n("bob", 50).await?);
    print("a look at Ann", &limiter.peek("ann").await?);

    limiter.reset("ann").await?;
    print("Ann after a reset", &limiter.peek("ann").await?);
    Ok(())
}

fn print(what: &str, decision: &Decision) {
    let left: Vec<String> = decision
        .policies()
        .map(|policy| {
            format!(
                "{} of {} {}",
                policy.remaining(),
                policy.capacity(),
                policy.name()
            )
        })
        .collect();
    let left = left.join(", ");
    match decision.retry_after() {
        Some(wait) => println!("{what}: denied; left: {left}; wait {wait:.0?}"),
        None if decision.is_allowed() => println!("{what}: allowed; left: {left}"),
        None => println!("{what}: never; left: {left}"),
    }
}
