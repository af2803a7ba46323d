//! What a file says, in any format: values, and where each of them is.

use std::fmt;

/// A value, and where it is. Values that serde read from another format have no place.
#[derive(Clone, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Option<Place>,
}

#[derive(Clone, PartialEq)]
pub(super) enum Value {
    /// No value: `null` of JSON and YAML.
    Nothing,
    Text(String),
    Whole(i128),
    /// A number with a fraction, or one too large for [`Value::Whole`]. No field takes one.
    Fraction(f64),
    Flag(bool),
    /// A date or a time of TOML. No field takes one.
    Date,
    List(Vec<Node>),
    /// In the order of the text. A name may be there twice, which the check reports.
    Table(Vec<Entry>),
}

/// A name in a table, and its value.
#[derive(Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Where the name is.
    pub(super) place: Option<Place>,
    pub(super) node: Node,
}

/// A line and a column of a text, both from 1. A column is one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Tables and lists inside each other: deeper ones are an error.
pub(super) const MAX_DEPTH: usize = 32;

impl Node {
    /// Returns the value of a name, if this is a table that has it.
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.name == name)
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns what a table has. It is empty for other values.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }
}

impl Value {
    /// Says what it is, for people: `a text`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Text(_) => "a text",
            Self::Whole(_) => "a number",
            Self::Fraction(_) => "a number with a fraction",
            Self::Flag(true) => "`true`",
            Self::Flag(false) => "`false`",
            Self::Date => "a date",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

impl fmt::Debug for Node {
    /// Shows no value: the text of a store may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::List(nodes) => f.debug_list().entries(nodes).finish(),
            Value::Table(entries) => {
                let entries = entries.iter().map(|entry| (&entry.name, &entry.node));
                f.debug_map().entries(entries).finish()
            }
            value => f.write_str(value.kind()),
        }
    }
}
