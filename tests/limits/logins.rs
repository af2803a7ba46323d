//! The login of the guide about authentication: its functions, with a clock that is moved by hand.

use std::cell::Cell;

use crate::support::prelude::*;

const PAGE: &str = include_str!("../../docs/authentication.md");

const MINUTE: Duration = Duration::from_secs(60);

/// `store`: a `RedisStore` in a fleet.
fn logins(store: impl Store) -> Result<Limiter, ConfigError> {
    let lockout = Penalty::after(5)
        .lasting(15 * MINUTE)
        .doubling_up_to(24 * 60 * MINUTE);
    Limiter::builder()
        .store(store)
        .policy(Policy::new("failures", FixedWindow::per_hour(20)).hold_for(MINUTE))
        .policy(Policy::new("lockout", lockout))
        .on_store_failure(OnStoreFailure::Deny)
        .build()
}

async fn login(logins: &Limiter, account: &str, password: &str) -> Result<bool, StoreError> {
    let attempt = logins.reserve(account, 1).await?;
    // Even if the attempt is denied: otherwise the time of the answer shows which guesses count.
    let is_right = verify(account, password);
    if !attempt.is_allowed() {
        return Ok(false); // limited or locked: the same answer as for a wrong password
    }
    if is_right {
        let _ = attempt.release().await; // an error must not deny a right password
    } else {
        let _ = logins.strike(account, 1).await?; // and dropping `attempt` charges its unit
    }
    Ok(is_right)
}

thread_local! {
    /// How many passwords this test has verified.
    static VERIFIED: Cell<u32> = const { Cell::new(0) };
}

fn verify(_account: &str, password: &str) -> bool {
    VERIFIED.set(VERIFIED.get() + 1);
    password == "correct horse"
}

/// Logs in, which verifies one password, whatever the limiter decides.
async fn log_in(logins: &Limiter, password: &str) -> bool {
    let before = VERIFIED.get();
    let is_in = login(logins, "alice", password).await;
    assert_eq!(VERIFIED.get(), before + 1);
    is_in.expect("the store answers")
}

#[tokio::test]
async fn the_login_of_the_guide_verifies_a_password_of_a_locked_account_too() {
    let (store, clock) = manual_store();
    let logins = logins(store).expect("limits");
    for locked_for in [15 * MINUTE, 30 * MINUTE] {
        for _ in 0..5 {
            assert!(log_in(&logins, "correct horse").await);
        }
        for _ in 0..5 {
            assert!(!log_in(&logins, "guess").await);
        }
        clock.advance(locked_for - Duration::from_secs(1));
        assert!(!log_in(&logins, "correct horse").await);
        clock.advance(Duration::from_secs(1));
    }
    assert!(log_in(&logins, "correct horse").await);
}

#[test]
fn the_guide_shows_the_login_that_is_tested() {
    for function in ["fn logins", "async fn login"] {
        let source = include_str!("logins.rs");
        let start = source.find(&format!("\n{function}(")).expect("a function") + 1;
        let length = source[start..].find("\n}\n").expect("its end") + 3;
        let code = &source[start..start + length];
        assert!(PAGE.contains(code), "the guide does not show this:\n{code}");
    }
}
