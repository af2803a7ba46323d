//! Drives the demo's front page in Chromium.

mod algorithms;
#[path = "../../../../crates/tower-throttle-admin/tests/driver/mod.rs"]
#[allow(dead_code, reason = "each binary uses a part")]
mod browser;
#[path = "../demo/folder.rs"]
mod folder;
mod front_page;
#[path = "../demo/process.rs"]
#[allow(dead_code, reason = "each binary uses a part")]
mod process;
#[path = "../../../../tests/support/mod.rs"]
mod support;
