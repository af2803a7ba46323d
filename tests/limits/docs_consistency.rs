//! Everything that the documents name exists.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the files of a folder that end so, without those of builds and hidden folders.
pub(super) fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(files(&path, end));
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
    found
}

/// Returns the texts of all sources in these folders.
fn sources<const N: usize>(folders: [&str; N]) -> String {
    let files = folders.map(|folder| files(&root().join(folder), ".rs"));
    files.concat().iter().map(read).collect()
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
    let texts = sources(["tests", "src", "crates", "examples"]);
    let known: HashSet<&str> = texts
        .split("fn ")
        .filter_map(|rest| rest.split(['(', '<']).next())
        .collect();
    let names = tests_named(&read("docs/guarantees.md"));
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let is_there = match name.contains('/') {
            true => root().join(&name).exists(),
            false => known.contains(&*name),
        };
        assert!(is_there, "{name} is no test");
    }
}

/// A closure whose last case is "else" and releases is asked about requests without a response, too.
#[test]
fn no_sample_serves_for_nothing_who_hangs_up() {
    let pages: String = files(root(), ".md").iter().map(read).collect();
    let texts = pages + &sources(["src", "examples"]);
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
    let pages = files(root(), ".md");
    assert!(pages.len() > 25, "{pages:?}");
    let mut lost = Vec::new();
    for page in &pages {
        // Code between fences is not text.
        let text: String = read(page).split("```").step_by(2).collect();
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split([')', ' ']).next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.with_file_name(path),
            };
            let has_heading = || {
                let target = read(&target);
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                heading.is_empty() || headings.any(|line| anchor(line) == heading)
            };
            if !target.exists() || !heading.is_empty() && !has_heading() {
                lost.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Neither docs.rs nor the book draws Mermaid. GitHub does, and the architecture is only there.
#[test]
fn docs_rs_can_draw_every_picture_and_each_has_a_description() {
    let mut pages = files(root(), ".md");
    pages.retain(|page| !page.ends_with("ARCHITECTURE.md"));
    let pages: String = pages.iter().map(read).collect();
    let all = pages.clone() + &sources(["src", "crates"]);
    assert!(!all.contains("```mermaid"));
    let pictures = files(&root().join("docs/images"), ".svg");
    assert!(pictures.len() > 10, "{pictures:?}");
    for path in pictures {
        let picture = read(&path);
        let name = path.file_name().expect("a name").to_string_lossy();
        let link = format!("images/{name})");
        let (before, _) = pages.split_once(&link).expect("a page with this picture");
        let (_, description) = before.rsplit_once("![").expect("a picture");
        assert!(description.len() > "](".len() + 20, "{name}");
        assert!(picture.contains("<title id=\"title\">"), "{name}");
    }
}

#[test]
fn the_picture_of_forwarded_addresses_has_those_of_its_page() {
    let picture = read("docs/images/client-ip.svg");
    let addresses = picture.split(|next: char| !next.is_ascii_digit() && next != '.');
    let addresses: HashSet<_> = addresses
        .filter(|word| word.matches('.').count() == 3)
        .collect();
    assert_eq!(addresses.len(), 4, "{addresses:?}");
    let page = read("docs/behind-a-proxy.md");
    for address in addresses {
        assert!(page.contains(address), "{address}");
    }
}

#[test]
fn the_index_the_book_and_docs_rs_have_every_guide() {
    let docs = root().join("docs");
    let lists = ["docs/README.md", "docs/SUMMARY.md"].map(read);
    let modules = read("src/guides.rs");
    let mut missing = Vec::new();
    for page in files(&docs, ".md") {
        let name = page.strip_prefix(&docs).expect("a page of the folder");
        let name = name.display().to_string();
        let link = format!("]({name})");
        let module = name.trim_end_matches(".md").replace('-', "_");
        let module = format!("{module}: \"../docs/{name}\",");
        // The lab pages are for developers, and only in the repository.
        let is_module = name.starts_with("lab/") || modules.contains(&module);
        let is_list = ["README.md", "SUMMARY.md"].contains(&&*name);
        let is_there = is_list || is_module && lists.iter().all(|list| list.contains(&link));
        if !is_there {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_file_that_the_architecture_names_is_there() {
    let page = read("ARCHITECTURE.md");
    let folders = "src/ tests/ docs/ examples/ benches/ scripts/ fuzz/";
    let quoted = page.split('`').skip(1).step_by(2);
    let quoted = quoted.filter(|word| {
        let is_path = folders.split(' ').any(|folder| word.starts_with(folder));
        is_path && !word.contains(' ')
    });
    // In the picture, paths are below `src/`.
    let drawn = page.split("<br/>").skip(1);
    let drawn = drawn.filter_map(|rest| rest.split('"').next());
    let drawn = drawn.map(|path| format!("src/{path}"));
    let paths: Vec<_> = quoted.map(str::to_owned).chain(drawn).collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        assert!(root().join(&path).exists(), "{path}");
    }
}

/// Types, traits, functions and modules, without their members.
#[test]
fn the_review_of_the_public_api_has_every_name() {
    let page = read("docs/lab/public-api.md");
    let packages = ["config", "admin", "client"];
    let recorded = packages.map(|name| format!("crates/tower-throttle-{name}/public-api.txt"));
    let api = recorded.iter().map(read).collect::<String>() + &read("public-api.txt");
    let is_of_a_name = |next: char| next.is_alphanumeric() || next == '_';
    let reviewed: HashSet<&str> = page.split(|next| !is_of_a_name(next)).collect();
    let paths = api.lines().filter_map(|line| {
        let (_, item) = line.split_once(" tower_throttle")?;
        let (_package, path) = item.split_once("::")?;
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

/// The files of `src/` that may use the client: three that talk to Redis, one that sets up its TLS,
/// one that takes a client of the application's own, and what fuzz targets call.
const USE_FRED: [&str; 6] = [
    "store/redis/client_reply.rs",
    "store/redis/connect.rs",
    "store/redis/connection.rs",
    "store/redis/handed_in.rs",
    "store/redis/tls/connector.rs",
    "fuzzing.rs",
];

#[test]
fn no_other_file_uses_the_redis_client() {
    let page = read("ARCHITECTURE.md");
    let may = USE_FRED.map(|file| root().join("src").join(file));
    for path in files(&root().join("src"), ".rs") {
        let text = read(&path);
        let code = text.lines().map(str::trim_start);
        let mut code = code.filter(|line| !line.starts_with("//"));
        let uses = code.any(|line| line.contains("fred::"));
        assert!(!uses || may.contains(&path), "{}", path.display());
    }
    for path in USE_FRED {
        let file = path.rsplit('/').next().expect("a name");
        assert!(page.contains(&format!("{file}`")), "{file}");
    }
}

#[test]
fn every_line_of_the_log_is_in_the_runbook() {
    let page = read("docs/runbook.md");
    let of_files = read("crates/tower-throttle-config/src/telemetry.rs");
    let telemetry = sources(["src/telemetry"]) + &of_files;
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
        .filter_map(|line| Some(line.split('{').next()?.trim_end_matches([' ', '('])))
        .collect();
    assert!(lines.len() >= 10, "{lines:?}");
    for line in lines {
        assert!(page.contains(line), "{line:?} is not in the runbook");
    }
}
