//! Checks what each source file uses: dependencies point down, in the order that
//! ARCHITECTURE.md lists, and no files form a cycle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A module's path below the crate: `["store", "memory"]`.
type Module = Vec<String>;

/// A path that a file uses, with the name under which a `pub use` exports it.
struct Used {
    path: Vec<String>,
    exported_as: Option<String>,
}

/// What each source file uses, without comments, strings and unit tests.
struct Sources(BTreeMap<Module, Vec<Used>>);

impl Sources {
    fn read() -> Self {
        let mut sources = Self(BTreeMap::new());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        sources.read_folder(&root, &[]);
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
                if !["mod", "lib"].contains(&&*name) {
                    module.push(name.into_owned());
                }
                let text = fs::read_to_string(&path).expect("a text");
                let uses = uses(&without_tests(&without_text(&text)));
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

/// Removes comments, strings and characters from a source text.
fn without_text(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|rest| {
            let hashes = rest.len() - rest.trim_start_matches('#').len();
            (hashes, &rest[hashes..])
        });
        let is_word = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some((hashes, inner)) =
            raw.filter(|(_, inner)| inner.starts_with('"') && !is_word)
        {
            let end = format!("\"{}", "#".repeat(hashes));
            let length = inner[1..].find(&end).expect("the end of a raw string");
            rest = &inner[1 + length + end.len()..];
        } else if first == '"' {
            let mut is_escaped = false;
            let end = rest[1..].find(|next: char| {
                let ends = next == '"' && !is_escaped;
                is_escaped = next == '\\' && !is_escaped;
                ends
            });
            rest = &rest[end.expect("the end of a string") + 2..];
        } else if first == '\'' && rest[1..].starts_with('\\') {
            let end = rest[3..].find('\'').expect("the end of a character");
            rest = &rest[end + 4..];
        } else if first == '\'' && rest.chars().nth(2) == Some('\'') {
            let length = rest.chars().take(3).map(char::len_utf8).sum();
            rest = &rest[length..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// Removes the items that are compiled for unit tests only.
fn without_tests(text: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(MARK) {
        kept.push_str(&rest[..start]);
        rest = &rest[start + MARK.len()..];
        let end = rest.find([';', '{']).expect("an item");
        let is_block = rest[end..].starts_with('{');
        rest = &rest[end + 1..];
        let mut depth = usize::from(is_block);
        while depth > 0 {
            let brace = rest.find(['{', '}']).expect("the end of a block");
            match rest[brace..].starts_with('{') {
                true => depth += 1,
                false => depth -= 1,
            }
            rest = &rest[brace + 1..];
        }
    }
    kept + rest
}

/// Returns the paths that a text uses, by `use` or in full.
fn uses(text: &str) -> Vec<Used> {
    let mut all = Vec::new();
    let mut rest = text;
    let mut code = String::new();
    while let Some(start) = rest.find("use ") {
        let before = &rest[..start];
        code.push_str(before);
        rest = &rest[start + "use ".len()..];
        if before.ends_with(|last: char| last.is_alphanumeric() || last == '_') {
            continue;
        }
        let line = before
            .rsplit([';', '{', '}', ']'])
            .next()
            .unwrap_or_default();
        let is_export = line.trim_start().starts_with("pub");
        let (tree, after) = rest.split_once(';').expect("the end of a use");
        rest = after;
        for path in branches(tree) {
            let (path, name) = match path.split_once(" as ") {
                Some((path, name)) => (path.to_owned(), name.trim().to_owned()),
                None => {
                    let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                    (path, name)
                }
            };
            all.push(Used {
                path: path
                    .split("::")
                    .map(|part| part.trim().to_owned())
                    .collect(),
                exported_as: is_export.then_some(name),
            });
        }
    }
    code.push_str(rest);
    for start in ["crate::", "super::", "self::"] {
        for (index, _) in code.match_indices(start) {
            let before = code[..index].chars().next_back();
            if before.is_some_and(|last| last.is_alphanumeric() || "_:".contains(last)) {
                continue;
            }
            let is_part = |next: char| next.is_alphanumeric() || "_:".contains(next);
            let path = &code[index..];
            let path = &path[..path.find(|next| !is_part(next)).unwrap_or(path.len())];
            all.push(Used {
                path: path
                    .trim_end_matches(':')
                    .split("::")
                    .map(str::to_owned)
                    .collect(),
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
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
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
    let order = order();
    let mut upward = Vec::new();
    for (user, used) in Sources::read().arrows() {
        let (from, own) = rank(&order, &user);
        for module in used.iter().filter(|module| !module.is_empty()) {
            let (to, other) = rank(&order, module);
            if own != other && from >= to {
                upward.push(format!("{} uses {}", user.join("::"), module.join("::")));
            }
        }
    }
    assert!(
        upward.is_empty(),
        "arrows that do not point down: {upward:#?}"
    );
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let arrows = Sources::read().arrows();
    assert!(arrows.values().flatten().count() > 200, "{arrows:#?}");
    // A file in a cycle uses another file of the cycle, and is used by one.
    let mut left: BTreeSet<&Module> = arrows.keys().collect();
    loop {
        let all = left.clone();
        left.retain(|file| {
            let uses = arrows[*file].iter().any(|used| all.contains(used));
            uses && all.iter().any(|user| arrows[*user].contains(*file))
        });
        if left.len() == all.len() {
            break;
        }
    }
    let left: Vec<String> = left.into_iter().map(|file| file.join("::")).collect();
    assert!(left.is_empty(), "on a circle, or between two: {left:#?}");
}

#[test]
fn paths_of_a_source_are_found() {
    let text = "pub use self::a::{B as C, d::{E, f}};\n\
                // use crate::no;\n\
                fn g<'x>(h: &'x crate::i::J) -> char { \"use crate::no\"; '\"' }\n\
                #[cfg(test)] mod tests { use super::k; }";
    let found: Vec<String> = uses(&without_tests(&without_text(text)))
        .into_iter()
        .map(|used| format!("{} {:?}", used.path.join("::"), used.exported_as))
        .collect();
    assert_eq!(
        found,
        [
            "self::a::B Some(\"C\")",
            "self::a::d::E Some(\"E\")",
            "self::a::d::f Some(\"f\")",
            "crate::i::J None",
        ]
    );
}
