//! What remains of a file without the tables that have a mistake of form.

use serde_json::{Value, json};

use super::{problem::Problem, tables::VERSION};

/// Replaces each table that has one of these mistakes by one without, so that serde can read the others.
///
/// `None` if that could make them seem wrong: a table that the file does not know may be a layer with a
/// misspelled name, and another version may have other fields.
pub(super) fn keep(file: &mut Value, problems: &[Problem]) -> Option<()> {
    let file = file.as_object_mut()?;
    for problem in problems {
        let table: Vec<_> = problem.at.table().iter().map(String::as_str).collect();
        match *table {
            // A field of the file itself is missing. Without policies, serde reads nothing.
            [] => drop(file.insert("version".to_owned(), VERSION.into())),
            // It stays in its place: layers may name it, and the others are counted.
            ["policy", index] => {
                let policies = file.get_mut("policy")?;
                let policy = policies.get_mut(index.parse::<usize>().ok()?)?;
                let name = policy["name"].as_str().filter(|name| !name.is_empty());
                let name = name.map_or_else(|| format!("policy {index}"), str::to_owned);
                *policy = json!({ "name": name, "quota": "1 per second" });
            }
            ["layer" | "limiter", name] => {
                let tables = file.get_mut(problem.at.kind())?.as_object_mut()?;
                tables.remove(name);
            }
            // Without the table, each key `client_ip` would be a mistake.
            ["client_ip"] => drop(file.insert("client_ip".to_owned(), json!({ "trusted": [] }))),
            ["peer" | "lists" | "store"] => drop(file.remove(problem.at.kind())),
            _ => return None,
        }
    }
    Some(())
}
