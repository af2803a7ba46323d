//! Keys: what identifies a caller, and what a client cannot change about it.
//!
//! Apart from the other tests of HTTP, because these use up how many header names a process
//! keeps, and how many lines it logs about proxies.

mod adversarial_input;
mod client_address;
#[cfg(feature = "axum")]
mod extractors;
#[path = "../support/mod.rs"]
mod support;

fn without_files() -> proptest::test_runner::Config {
    proptest::test_runner::Config {
        failure_persistence: None,
        ..Default::default()
    }
}
