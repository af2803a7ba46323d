//! [`FilePlace`]: where a value is in a file.

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

/// Where a value is in a file: the names and the numbers that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilePlace(Vec<String>);

impl FilePlace {
    /// Returns the place of the file itself.
    pub(crate) const fn root() -> Self {
        Self(Vec::new())
    }

    /// Returns where a field of a table is, or an item of a list.
    pub(crate) fn to<S: ToString + ?Sized>(&self, step: &S) -> Self {
        let mut inner = self.clone();
        inner.enter(&step.to_string());
        inner
    }

    pub(crate) fn enter(&mut self, step: &str) {
        self.0.push(step.to_owned());
    }

    pub(crate) fn leave(&mut self) {
        self.0.pop();
    }

    /// Returns the first name: that of a table, or of a kind of tables.
    pub(crate) fn kind(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Returns where the outermost table with a mistake is: a policy, layer or limiter, or another one.
    pub(crate) fn table(&self) -> &[String] {
        let depth = match self.kind() {
            "policy" | "layer" | "limiter" => 2,
            _ => 1,
        };
        self.0.get(..depth).unwrap_or(&self.0)
    }

    /// Returns the name of the field.
    pub(crate) fn field(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    pub(crate) fn value_in<'v>(&self, file: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(file, |value, step| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        })
    }

    /// Finds the value in the text of a file, and writes the path to it for people. A field that is
    /// not there has no offset. `is_of_name`: finds the name of the field and not its value.
    pub(crate) fn find(&self, file: &DeTable<'_>, is_of_name: bool) -> (Option<usize>, String) {
        let (mut offset, mut path) = (Some(0), String::new());
        let (mut table, mut list) = (Some(file), None::<&DeArray<'_>>);
        for (depth, step) in self.0.iter().enumerate() {
            let field = table.and_then(|table| DeTable::get_key_value(table, &**step));
            let name = field.map(|(name, _)| name.span().start);
            if is_of_name && depth + 1 == self.0.len() {
                return (name, path);
            }
            let item = || list.and_then(|list| list.get(step.parse::<usize>().ok()?));
            let inner = field.map(|(_, value)| value).or_else(item);
            offset = inner.map(|inner| inner.span().start);
            let inner = inner.map(Spanned::get_ref);
            let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            let name = || inner?.as_table()?.get("name")?.get_ref().as_str();
            path += &match (depth, path.as_str(), list.is_some()) {
                (0, ..) => step.clone(),
                (1, "policy", _) => match name() {
                    Some(name) => format!(" {name:?}"),
                    None => format!(" {}", step.parse::<usize>().map_or(0, |index| index + 1)),
                },
                (1, "layer" | "limiter", _) => format!(" {step:?}"),
                (.., true) => format!("[{step}]"),
                _ if step.chars().all(is_bare) => format!(".{step}"),
                _ => format!(".{step:?}"),
            };
            table = inner.and_then(DeValue::as_table);
            list = inner.and_then(DeValue::as_array);
        }
        (offset, path)
    }
}
