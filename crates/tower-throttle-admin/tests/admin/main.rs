//! The admin page and its API: over HTTP, and on real Redis servers.

mod access;
mod api;
mod asked;
#[path = "../../../../tests/http/logged.rs"]
mod logged;
mod operator;
mod page;
mod redis;
#[path = "../../../../tests/support/mod.rs"]
mod support;
