//! Checks what each source file uses. In this package, dependencies point down, in the order that
//! ARCHITECTURE.md lists. No files form a cycle, here and in the packages of `crates/`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A module's path below the crate: `["store", "memory"]`.
type Module = Vec<String>;

/// A path that a file uses, with the name under which a `pub use` exports it.
struct Used {
    path: Vec<String>,
    exported_as: Option<String>,
}

/// What each source file uses, without comments and unit tests.
struct Sources(BTreeMap<Module, Vec<Used>>);

impl Sources {
    fn read(package: &Path) -> Self {
        let mut sources = Self(BTreeMap::new());
        sources.read_folder(&package.join("src"), &[]);
        sources
    }

    fn read_folder(&mut self, folder: &Path, module: &[String]) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().expect("a name").to_string_lossy();
            let mut module = module.to_vec();
            if path.is_dir() && name != "tests" {
                module.push(name.into_owned());
                self.read_folder(&path, &module);
            } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests"
            {
                if !["mod", "lib", "main"].contains(&&*name) {
                    module.push(name.into_owned());
                }
                let text = fs::read_to_string(&path).expect("a text");
                let uses = uses(&code(&text));
                self.0.insert(module, uses);
            }
        }
    }

    /// Returns the file that defines the item of a path, if it is one of these files.
    fn definition(&self, user: &[String], path: &[String], depth: usize) -> Option<Module> {
        let mut module = user.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
            }
            child => {
                module.push(child.to_owned());
                let is_child = self.0.contains_key(&module);
                module.pop();
                if !is_child {
                    return None;
                }
            }
        }
        while let Some(part) = rest.first() {
            module.push(part.clone());
            if !self.0.contains_key(&module) {
                module.pop();
                break;
            }
            rest = &rest[1..];
        }
        // An item that the module re-exports is defined elsewhere.
        if let Some(item) = rest.first().filter(|_| depth < 8) {
            let export = self.0[&module]
                .iter()
                .find(|used| used.exported_as.as_ref() == Some(item));
            if let Some(export) = export {
                return self.definition(&module, &export.path, depth + 1);
            }
        }
        Some(module)
    }

    /// Returns which files each file uses. A file may use what the `mod.rs` of its own folder
    /// defines, and a `mod.rs` may export what its folder has.
    fn arrows(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut arrows = BTreeMap::new();
        for (user, uses) in self.0.iter().filter(|(user, _)| !user.is_empty()) {
            let used: BTreeSet<Module> = uses
                .iter()
                .filter_map(|used| {
                    let module = self.definition(user, &used.path, 0)?;
                    let is_export = used.exported_as.is_some() && module.starts_with(user);
                    (!is_export && !user.starts_with(&module)).then_some(module)
                })
                .collect();
            arrows.insert(user.clone(), used);
        }
        arrows
    }
}

/// Returns a source text up to its unit tests, without comments.
fn code(text: &str) -> String {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| match line.trim_start() {
        comment if comment.starts_with("//") => "",
        _ => line.split(" // ").next().unwrap_or_default(),
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn parts(path: &str) -> Vec<String> {
    let parts = path.trim_end_matches(':').split("::");
    parts.map(|part| part.trim().to_owned()).collect()
}

/// Returns the paths that a text uses, by `use` or in full.
fn uses(text: &str) -> Vec<Used> {
    let mut all = Vec::new();
    let mut code = String::new();
    for statement in text.split(';') {
        let (before, tree) = statement.rsplit_once("use ").unwrap_or((statement, ""));
        let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
        let is_export = line.starts_with("pub");
        // The words "; use" may also be in a message.
        let is_of_tree = |next: char| next.is_alphanumeric() || "_:{}, *\n".contains(next);
        let is_tree = tree.contains("::") && tree.chars().all(is_of_tree);
        if !is_tree || !(line.is_empty() || is_export) {
            code.push_str(statement);
            continue;
        }
        code.push_str(before);
        for branch in branches(tree) {
            let (path, name) = branch.split_once(" as ").unwrap_or((&branch, &branch));
            let name = name.rsplit("::").next().unwrap_or_default().trim();
            all.push(Used {
                path: parts(path),
                exported_as: is_export.then(|| name.to_owned()),
            });
        }
    }
    let is_part = |next: char| next.is_alphanumeric() || "_:".contains(next);
    for start in ["crate::", "super::", "self::"] {
        for (index, _) in code.match_indices(start) {
            if code[..index].ends_with(is_part) {
                continue;
            }
            let path = &code[index..];
            let path = &path[..path.find(|next| !is_part(next)).unwrap_or(path.len())];
            all.push(Used {
                path: parts(path),
                exported_as: None,
            });
        }
    }
    all
}

/// Returns the paths of a tree: `a::{b, c::{d, e}}` has three.
fn branches(tree: &str) -> Vec<String> {
    let Some((start, inner)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let inner = inner.rsplit_once('}').expect("the end of a group").0;
    let mut depth = 0;
    let parts = inner.split(|next: char| {
        depth += i32::from(next == '{') - i32::from(next == '}');
        next == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty());
    parts
        .flat_map(branches)
        .map(|branch| format!("{}{branch}", start.trim()))
        .collect()
}

/// Reads the order that ARCHITECTURE.md lists: the modules of each line, from the top down.
fn order() -> Vec<Vec<Module>> {
    let page = Path::new(ROOT).join("ARCHITECTURE.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, rest) = page.split_once("```text order\n").expect("the order");
    let (order, _) = rest.split_once("```").expect("its end");
    let modules = |line: &str| {
        let names = line.split('#').next().unwrap_or_default();
        let names = names.split_whitespace();
        names
            .map(|name| name.split("::").map(str::to_owned).collect())
            .collect()
    };
    order.lines().map(modules).collect()
}

/// Returns the line of the order that a file belongs to: the one with the longest prefix of it.
fn rank(order: &[Vec<Module>], file: &[String]) -> (usize, Module) {
    let listed = order
        .iter()
        .enumerate()
        .flat_map(|(rank, modules)| modules.iter().map(move |module| (rank, module)));
    let nearest = listed
        .filter(|(_, module)| file.starts_with(module))
        .max_by_key(|(_, module)| module.len());
    let (rank, module) = nearest
        .unwrap_or_else(|| panic!("{} is not in the order of ARCHITECTURE.md", file.join("::")));
    (rank, module.clone())
}

#[test]
fn arrows_between_modules_point_down() {
    let (order, arrows) = (order(), Sources::read(Path::new(ROOT)).arrows());
    assert!(arrows.values().flatten().count() > 200, "{arrows:#?}");
    let mut upward = Vec::new();
    for (user, used) in arrows {
        let (from, own) = rank(&order, &user);
        for module in used.iter().filter(|module| !module.is_empty()) {
            let (to, other) = rank(&order, module);
            if own != other && from >= to {
                upward.push(format!("{} uses {}", user.join("::"), module.join("::")));
            }
        }
    }
    assert!(upward.is_empty(), "these point up: {upward:#?}");
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    for package in packages() {
        let arrows = Sources::read(&package).arrows();
        assert!(arrows.values().any(|used| !used.is_empty()), "{arrows:#?}");
        let (left, package) = (files_on_circles(&arrows), package.display());
        assert!(
            left.is_empty(),
            "on a circle, or between two, in {package}: {left:#?}"
        );
    }
}

/// Returns the folders of this package and of those in `crates/`.
fn packages() -> Vec<PathBuf> {
    let crates = fs::read_dir(Path::new(ROOT).join("crates")).expect("the folder of packages");
    let crates = crates.map(|entry| entry.expect("an entry").path());
    [PathBuf::from(ROOT)].into_iter().chain(crates).collect()
}

/// Returns the files that use another file of a circle and are used by one.
fn files_on_circles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let mut left: BTreeSet<&Module> = arrows.keys().collect();
    loop {
        let all = left.clone();
        left.retain(|file| {
            let uses = arrows[*file].iter().any(|used| all.contains(used));
            uses && all.iter().any(|user| arrows[*user].contains(*file))
        });
        if left.len() == all.len() {
            return left.into_iter().map(|file| file.join("::")).collect();
        }
    }
}
