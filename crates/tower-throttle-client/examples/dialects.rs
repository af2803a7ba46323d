//! Ten workers call partners that want no calls for a while, in virtual time. Each partner says so in the
//! fields that it really sends. It needs no Redis:
//!
//! ```text
//! cargo run -p tower-throttle-client --example dialects
//! # partner                      pause    calls inside   calls in all
//! # OpenAI, requests             8.64 s              0             21
//! ```

#[path = "../tests/outbound/partner.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod partner;
#[path = "../tests/outbound/recorded.rs"]
mod recorded;

use recorded::{RECORDED, calls};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    println!(
        "{:<28} {:>9} {:>14} {:>14}",
        "partner", "pause", "calls inside", "calls in all"
    );
    for recorded in RECORDED {
        let (inside, all) = calls(recorded).await;
        let (partner, _, _, pause) = recorded;
        println!(
            "{partner:<28} {:>7} s {inside:>14} {all:>14}",
            pause.as_secs_f64()
        );
    }
}
