//! The page of attacks, compared with the tests that it names.

use std::{collections::BTreeSet, fs, path::Path};

/// Collects the names of the tests in a folder.
fn tests_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            tests_in(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        // Between the attribute and the function are other attributes only.
        let marks = ["test]\n", "test(start_paused = true)]\n"];
        let marked = marks.iter().flat_map(|mark| text.split(mark).skip(1));
        for rest in marked {
            let mut lines = rest.lines();
            let line = lines.find(|line| !line.trim_start().starts_with("#["));
            let name = line.and_then(|line| line.split_once("fn ")?.1.split('(').next());
            found.extend(name.map(str::to_owned));
        }
    }
}

#[test]
fn each_attack_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/admin-security.md")).expect("the page");
    let mut tests = BTreeSet::new();
    tests_in(&root.join("tests"), &mut tests);
    tests_in(&root.join("src"), &mut tests);
    let (_, table) = page
        .split_once("| attack | what stops it | test |\n|---|---|---|\n")
        .expect("the table");
    let rows: Vec<&str> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() >= 20, "{rows:#?}");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [_, _, named] = cells[..] else {
            panic!("a row has three cells: {row}");
        };
        let named: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {row}");
        for name in named {
            assert!(tests.contains(name), "there is no test {name}");
        }
    }
}
