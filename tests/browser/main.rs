//! Drives pages in Chromium: the admin page, and the front page of the demo.

#[path = "../support/browser/mod.rs"]
mod browser;
mod harness;
#[path = "../support/mod.rs"]
mod support;
