//! Tests whose stores do not wait for Redis fail by chance on a busy machine.

use super::docs_consistency::{files, read, root};

/// A store with the default timeout does not wait for a busy machine, and this process decides in
/// place of Redis. The builders of `tests/support/stores.rs` state which test wants that. Unit tests
/// have no server, and servers that are simulated are not late.
#[test]
fn tests_make_their_stores_in_support_and_their_files_have_a_timeout() {
    let (mut tests, mut hasty) = (0, Vec::new());
    for path in files(root(), ".rs") {
        let name = path.strip_prefix(root()).expect("a file of the project");
        let folders: Vec<_> = name.iter().flat_map(|part| part.to_str()).collect();
        let is_test = match folders[..] {
            ["tests", "support", "stores.rs"] => false,
            ["tests", ..] | ["crates" | "examples", _, "tests", ..] => true,
            _ => false,
        };
        tests += usize::from(is_test);
        // The command line has a timeout of its own in place of that of the file.
        let has_files = !folders.contains(&"tower-throttle-cli");
        for (number, line) in (1..).zip(read(&path).lines()) {
            let is_code = is_test && !line.trim_start().starts_with("//");
            if is_code && (makes_a_store(line) || has_files && names_a_server(line)) {
                hasty.push(format!("{}:{number}: {}", name.display(), line.trim()));
            }
        }
    }
    assert!(tests > 200, "{tests} files");
    assert!(hasty.is_empty(), "{hasty:#?}");
}

fn makes_a_store(line: &str) -> bool {
    let mut calls = ["builder(", "connect("].into_iter();
    calls.any(|call| line.contains(&format!("RedisStore::{call}"))) && !line.contains(".simulated(")
}

/// Whether it is a line of a file of limits with the URL of a server that a test has started.
fn names_a_server(line: &str) -> bool {
    let mut values = line.split("redis = ").skip(1);
    let is_of_a_test = |value: &str| {
        let value = value.trim_start_matches(['\\', '"']);
        ["{", "redis://127.0.0.1:{", "redis://localhost:{"]
            .iter()
            .any(|start| value.starts_with(start))
    };
    values.any(|value| value != "{" && is_of_a_test(value)) && !line.contains("timeout")
}
