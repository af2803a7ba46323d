//! Drives the admin page in Chromium.

mod app;
#[path = "../driver/mod.rs"]
mod browser;
mod changing;
mod client;
mod hostile;
mod layout;
mod many;
mod origins;
mod page;
mod plain;
mod sampling;
mod signing_in;
#[path = "../../../../tests/support/mod.rs"]
mod support;
mod watching;
