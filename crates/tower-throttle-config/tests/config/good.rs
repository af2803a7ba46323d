//! Each good file of `tests/config/good` becomes limits.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::Response;
use tower_throttle::{metrics::Observe, settle};
use tower_throttle_config::{Config, Readers};

use crate::support::prelude::*;

#[derive(Debug)]
struct Audit;

impl Observe for Audit {}

/// Returns the good files.
pub(crate) fn good_files() -> Vec<PathBuf> {
    let entries = fs::read_dir("tests/config/good").expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml");
    paths.filter(is_toml).collect()
}

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
    let files = good_files();
    assert!(files.len() >= 5, "{files:?}");
    for path in files {
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

/// Returns the TOML blocks of all pages that are files of limits, with the page of each.
fn samples() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("a folder");
    let docs = docs.map(|page| page.expect("a page").path());
    let readmes = ["README.md", "crates/tower-throttle-config/README.md"];
    let pages = docs.chain(readmes.map(|page| root.join(page)));
    let mut samples = Vec::new();
    for page in pages.filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(&page).expect("a text");
        let blocks = text.split("```toml\n").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        let blocks = blocks.filter(|block| !block.contains("dependencies]"));
        samples.extend(blocks.map(|block| (page.display().to_string(), block.to_owned())));
    }
    samples
}

#[tokio::test]
async fn every_sample_of_the_documentation_becomes_limits() {
    let samples = samples();
    assert!(samples.len() >= 5, "{samples:?}");
    for (page, sample) in samples {
        let file = match sample.contains("version = 1") {
            true => sample.replace("${REDIS_URL}", "redis://127.0.0.1:1/"),
            // Fields of a policy.
            false => format!(
                "version = 1\n[[policy]]\nname = \"sample\"\nquota = \"1 per second\"\n{sample}"
            ),
        };
        let built = Config::from_toml(&file).and_then(|config| config.readers(readers()).build());
        assert!(built.is_ok(), "{page}: {}\n{file}", built.unwrap_err());
    }
}
