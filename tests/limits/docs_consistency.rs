//! Everything that the documents name exists.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, texts: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push_str(&fs::read_to_string(&path).expect("a text"));
        }
    }
}

/// The words in backquotes of each row's last cell.
fn tests_named(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let mut names = Vec::new();
    let mut is_of_tests = false;
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let last = cells.last().map_or("", |cell| cell.trim());
        if row.starts_with("|---") {
            continue;
        }
        if !row.contains('`') || last == "Test" {
            is_of_tests = last == "Test";
            continue;
        }
        if is_of_tests {
            let words = last.split('`').skip(1).step_by(2);
            names.extend(words.map(str::to_owned));
        }
    }
    names
}

#[test]
fn every_test_that_the_guarantees_name_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/guarantees.md")).expect("the page");
    let mut texts = String::new();
    for folder in ["tests", "src", "crates", "examples"] {
        sources(&root.join(folder), &mut texts);
    }
    let known: HashSet<&str> = texts
        .split("fn ")
        .filter_map(|rest| rest.split(['(', '<']).next())
        .collect();
    let names = tests_named(&page);
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let is_there = match name.contains('/') {
            true => root.join(&name).exists(),
            false => known.contains(&*name),
        };
        assert!(is_there, "{name} is no test");
    }
}

/// Finds the documents of the repository.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            documents(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// A closure whose last case is "else" and releases is asked about requests without a response, too.
#[test]
fn no_sample_serves_for_nothing_who_hangs_up() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = Vec::new();
    documents(root, &mut pages);
    let mut texts = String::new();
    for page in pages {
        texts += &fs::read_to_string(page).expect("a page");
    }
    for folder in ["src", "examples"] {
        sources(&root.join(folder), &mut texts);
    }
    assert!(texts.contains("Some(_) => Settle::Release"));
    for case in ["_ => Settle::Release", "None => Settle::Release"] {
        let mut found = texts.match_indices(case);
        let found = found.find(|(at, _)| !texts[..*at].ends_with("Some("));
        assert_eq!(found, None, "a sample has {case}");
    }
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let is_kept = |next: &char| next.is_alphanumeric() || " -_".contains(*next);
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    heading
        .chars()
        .filter(is_kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut pages = Vec::new();
    documents(Path::new(env!("CARGO_MANIFEST_DIR")), &mut pages);
    assert!(pages.len() > 25, "{pages:?}");
    let mut lost = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        // Code between fences is not text.
        let text: String = text.split("```").step_by(2).collect();
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split([')', ' ']).next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.with_file_name(path),
            };
            let is_there = target.exists()
                && (heading.is_empty() || {
                    let target = fs::read_to_string(&target).expect("a page");
                    let mut headings = target.lines().filter(|line| line.starts_with('#'));
                    headings.any(|line| anchor(line) == heading)
                });
            if !is_there {
                lost.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn the_index_the_book_and_docs_rs_have_every_guide() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = root.join("docs");
    let read = |file: &str| fs::read_to_string(root.join(file)).expect("a text");
    let mut pages = Vec::new();
    documents(&docs, &mut pages);
    let names = pages
        .iter()
        .map(|page| page.strip_prefix(&docs).expect("a page of the folder"))
        .map(|name| name.display().to_string())
        .filter(|name| !["README.md", "SUMMARY.md"].contains(&&**name));
    let lists = ["docs/README.md", "docs/SUMMARY.md"].map(read);
    let modules = read("src/guides.rs");
    let missing: Vec<_> = names
        .filter(|name| {
            let is_listed = lists
                .iter()
                .all(|list| list.contains(&format!("]({name})")));
            // The lab pages are for developers, and only in the repository.
            let is_module = name.starts_with("lab/") || {
                let module = name.trim_end_matches(".md").replace('-', "_");
                modules.contains(&format!("{module}: \"../docs/{name}\","))
            };
            !is_listed || !is_module
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_file_that_the_architecture_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the page");
    let quoted = page.split('`').skip(1).step_by(2);
    // In the picture, paths are below `src/`.
    let drawn = page.split("<br/>").skip(1);
    let drawn = drawn.filter_map(|rest| rest.split('"').next());
    let drawn = drawn.map(|path| format!("src/{path}"));
    let is_path = |word: &str| {
        let folders = [
            "src/",
            "tests/",
            "docs/",
            "examples/",
            "benches/",
            "scripts/",
            "fuzz/",
        ];
        folders.iter().any(|folder| word.starts_with(folder)) && !word.contains(' ')
    };
    let paths: Vec<_> = quoted
        .filter(|word| is_path(word))
        .map(str::to_owned)
        .chain(drawn)
        .collect();
    assert!(paths.len() > 30, "{paths:?}");
    let lost: Vec<_> = paths
        .iter()
        .filter(|path| !root.join(path).exists())
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Types, traits, functions and modules, without their members.
#[test]
fn the_review_of_the_public_api_has_every_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file| fs::read_to_string(root.join(file)).expect("a text");
    let (api, page) = (read("public-api.txt"), read("docs/lab/public-api.md"));
    let is_of_a_name = |next: char| next.is_alphanumeric() || next == '_';
    let reviewed: HashSet<&str> = page.split(|next| !is_of_a_name(next)).collect();
    let paths = api.lines().filter_map(|line| {
        let (_, path) = line.split_once(" tower_throttle::")?;
        let path = path
            .split(|next| !is_of_a_name(next) && next != ':')
            .next()?;
        Some(path.trim_end_matches(':'))
    });
    let mut names = HashSet::new();
    for path in paths {
        let (outer, name) = path.rsplit_once("::").unwrap_or(("", path));
        if !outer.contains(char::is_uppercase) {
            names.insert(name);
        }
    }
    assert!(names.len() > 70, "{names:?}");
    let unknown: Vec<_> = names.difference(&reviewed).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The files of `src/` that may use the client: three that talk to Redis, one that takes a
/// client of the application's own, and what fuzz targets call.
const USE_FRED: [&str; 5] = [
    "store/redis/client_reply.rs",
    "store/redis/connect.rs",
    "store/redis/connection.rs",
    "store/redis/handed_in.rs",
    "fuzzing.rs",
];

#[test]
fn no_other_file_uses_the_redis_client() {
    fn uses(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                uses(&path, found);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            let mut code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            if code.any(|line| line.contains("fred::")) {
                found.push(path.display().to_string());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    uses(&root, &mut found);
    let may = USE_FRED.map(|file| root.join(file).display().to_string());
    found.retain(|file| !may.contains(file));
    assert!(found.is_empty(), "{found:#?}");
    let page = fs::read_to_string(root.with_file_name("ARCHITECTURE.md")).expect("the page");
    for path in USE_FRED {
        let file = path.rsplit('/').next().expect("a name");
        assert!(page.contains(&format!("{file}`")), "{file}");
    }
}

#[test]
fn every_line_of_the_log_is_in_the_runbook() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/runbook.md")).expect("the page");
    let sources = fs::read_dir(root.join("src/telemetry")).expect("a folder");
    let sources = sources.map(|source| fs::read_to_string(source.expect("a source").path()));
    let telemetry: Vec<_> = sources.map(|text| text.expect("a text")).collect();
    let of_files = root.join("crates/tower-throttle-config/src/telemetry.rs");
    let of_files = fs::read_to_string(of_files).expect("a text");
    let telemetry = format!("{}{of_files}", telemetry.concat());
    // Each line starts with words of its own, up to its first variable part. Denials have a
    // page of their own, and some lines are built before they are logged.
    let reported = telemetry.split("    tell!(").skip(1);
    let reported = reported.chain(telemetry.split("    tracing::").skip(1));
    let reported = reported.filter_map(|rest| rest.split(");\n").next()?.rsplit('"').nth(1));
    let built = telemetry.split("let line = ").skip(1);
    let built = built.filter_map(|rest| rest.split('"').nth(1));
    let lines: Vec<_> = reported
        .chain(built)
        .filter(|line| !["denied", "would be denied", "{line}"].contains(line))
        .map(|line| {
            line.split('{')
                .next()
                .unwrap_or(line)
                .trim_end_matches([' ', '('])
        })
        .collect();
    assert!(lines.len() >= 10, "{lines:?}");
    for line in lines {
        assert!(page.contains(line), "{line:?} is not in the runbook");
    }
}
