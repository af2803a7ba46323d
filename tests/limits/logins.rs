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

/// The key of the account that was found. All names that are of no account share one.
fn account_key(account: Option<u64>) -> Key {
    account.map_or_else(|| Key::from("no account"), Key::from)
}

async fn login(logins: &Limiter, name: &str, password: &str) -> Result<bool, StoreError> {
    let account = find(name);
    let attempt = logins.reserve(account_key(account), 1).await?;
    // Even if the attempt is denied: otherwise the time of the answer shows which guesses count.
    let is_right = verify(account, password);
    if !attempt.is_allowed() {
        return Ok(false); // limited or locked: the same answer as for a wrong password
    }
    if is_right {
        let _ = attempt.release().await; // an error must not deny a right password
    } else {
        let _ = logins.strike(account_key(account), 1).await?; // and dropping `attempt` charges its unit
    }
    Ok(is_right)
}

thread_local! {
    /// How many passwords this test has verified.
    static VERIFIED: Cell<u32> = const { Cell::new(0) };
}

fn find(name: &str) -> Option<u64> {
    (name.to_lowercase() == "alice@example.com").then_some(7)
}

fn verify(account: Option<u64>, password: &str) -> bool {
    VERIFIED.set(VERIFIED.get() + 1);
    account.is_some() && password == "correct horse"
}

/// Logs in, which verifies one password, whatever the limiter decides.
async fn log_in_as(logins: &Limiter, name: &str, password: &str) -> bool {
    let before = VERIFIED.get();
    let is_in = login(logins, name, password).await;
    assert_eq!(VERIFIED.get(), before + 1);
    is_in.expect("the store answers")
}

async fn log_in(logins: &Limiter, password: &str) -> bool {
    log_in_as(logins, "alice@example.com", password).await
}

/// Returns the spellings of a name whose first nine letters are upper or lower case.
fn spellings(name: &str) -> Vec<String> {
    let spelling = |bits: usize| {
        let mut letters = 0;
        let spelled = name.chars().map(|character| {
            let is_upper = character.is_alphabetic() && letters < 9 && bits >> letters & 1 == 1;
            letters += usize::from(character.is_alphabetic());
            if is_upper {
                character.to_ascii_uppercase()
            } else {
                character
            }
        });
        spelled.collect()
    };
    (0..512).map(spelling).collect()
}

#[tokio::test]
async fn all_spellings_of_a_name_have_the_guesses_of_one_account() {
    let (store, _) = manual_store();
    let logins = logins(store.clone()).expect("limits");
    let names = spellings("alice@example.com");
    for name in &names[..5] {
        assert!(!log_in_as(&logins, name, "guess").await);
    }
    for name in &names {
        assert!(!log_in_as(&logins, name, "correct horse").await, "{name}");
    }
    // Each policy has a bucket for the account, and one for all names of no account.
    for name in spellings("mallory@example.com") {
        assert!(!log_in_as(&logins, &name, "guess").await);
    }
    assert_eq!(store.len(), 4);
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
    for function in ["fn logins", "fn account_key", "async fn login"] {
        let source = include_str!("logins.rs");
        let start = source.find(&format!("\n{function}(")).expect("a function") + 1;
        let length = source[start..].find("\n}\n").expect("its end") + 3;
        let code = &source[start..start + length];
        assert!(PAGE.contains(code), "the guide does not show this:\n{code}");
    }
}
