//! Each good file of `tests/config/good` becomes limits.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tower_throttle::{ManualClock, MemoryStore, key, metrics::Observe, settle};
use tower_throttle_config::{Config, Readers};

use crate::files::toml_files;

#[derive(Debug)]
struct Audit;

impl Observe for Audit {}

/// Whatever these files name.
fn readers() -> Readers {
    Readers::new()
        .client_address("proxy", key::peer())
        .clock("clock", Arc::new(ManualClock::new()))
        .clock("manual", Arc::new(ManualClock::new()))
        .cost("weight", |_| 2)
        .headers_when("no redirects", |status, _| !status.is_redirection())
        .key("tenant", key::header("x-tenant"))
        .name_offenders("user", |_| None)
        .observe("audit", Audit)
        .on_denied("page", |_| Response::new(Bytes::new()))
        .quota("plan", |_| Some("paid"))
        .settle("own", settle::failures())
        .store("simulated", MemoryStore::new())
        .when("paid", |_| true)
}

#[tokio::test]
async fn every_good_file_becomes_limits() {
    for path in toml_files("good") {
        let built = Config::from_path(&path).and_then(|config| config.readers(readers()).build());
        let limits = built.unwrap_or_else(|errors| panic!("{errors}"));
        let has_layer = ["api", "default"]
            .iter()
            .any(|name| limits.layer(name).is_ok());
        assert!(has_layer, "{}", path.display());
        let is_example = path.ends_with("example.toml");
        assert!(!is_example || limits.limiter("jobs").is_ok());
    }
}
