//! `docs/cli.md`: each of its commands runs on the page's own file, and `explain` prints what the page shows.

use crate::{
    run::{File, run_with},
    support::RedisServer,
};

/// Returns the texts between fences of a kind.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let blocks = page.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n'));
    blocks.collect()
}

#[test]
fn every_command_of_the_page_does_what_the_page_shows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let server = RedisServer::start();
    let limits = blocks(&page, "toml")[0];
    // The file that is deployed: a policy of the new one starts afresh.
    let before = File::new(&limits.replace("30 per minute", "sliding window of 30 per minute"));
    let file = File::new(limits);

    let mut explained = String::new();
    let mut count = 0;
    for block in blocks(&page, "sh") {
        let mut url = server.url();
        for line in block.replace("\\\n", " ").lines() {
            if let Some(value) = line.strip_prefix("export REDIS_URL=") {
                url = value.to_owned();
            }
            let (line, comment) = line.split_once(" # ").unwrap_or((line, ""));
            let line = line.trim_end().trim_end_matches("|| exit 1");
            let Some(line) = line.strip_prefix("tower-throttle ") else {
                continue;
            };
            let code = i32::from(comment.trim_start().starts_with("1:"));
            let paths = line.replace("deployed.toml", &before.to_string());
            let paths = paths.replace(" limits.toml", &format!(" {file}"));
            let run = run_with(&paths, &[("REDIS_URL", url.clone())]).with_code(code);
            if line.starts_with("explain") {
                explained = run.out;
            }
            count += 1;
        }
    }
    assert!(count >= 11, "{page}");
    let shown = blocks(&page, "text")[0].split("  ..\n").next();
    let shown = shown.expect("a text");
    assert!(explained.starts_with(shown), "{shown}\n---\n{explained}");
}
