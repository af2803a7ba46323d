//! Drives pages in Chromium: the admin page, and the front page of the demo.

mod app;
#[path = "../support/browser/mod.rs"]
mod browser;
mod changing;
mod client;
mod harness;
mod hostile;
mod layout;
mod many;
mod origins;
mod page;
mod plain;
mod reconnecting;
mod signing_in;
mod site;
#[path = "../support/mod.rs"]
mod support;
mod watching;
