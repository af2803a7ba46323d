//! Drives pages in Chromium: the admin page, and the front page of the demo.

mod app;
#[path = "../driver/mod.rs"]
mod browser;
mod changing;
mod client;
mod demo;
mod demo_pictures;
#[path = "../../demo/folder.rs"]
mod folder;
mod harness;
mod hostile;
mod layout;
mod many;
mod origins;
mod page;
mod plain;
#[path = "../../demo/process.rs"]
#[allow(dead_code, reason = "each binary uses a part")]
mod process;
mod reconnecting;
mod signing_in;
mod site;
#[path = "../../support/mod.rs"]
mod support;
mod watching;
