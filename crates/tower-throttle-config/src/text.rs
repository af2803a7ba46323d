//! Values of a file as TOML in one line.

use crate::tree::{Node, Value};

/// Writes a value.
pub(super) fn write(node: &Node) -> String {
    match &node.value {
        Value::Nothing => "none".to_owned(),
        Value::Text(text) => format!("{text:?}"),
        Value::Whole(number) => number.to_string(),
        Value::Fraction(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Date => "a date".to_owned(),
        Value::List(nodes) => {
            let nodes: Vec<_> = nodes.iter().map(write).collect();
            format!("[{}]", nodes.join(", "))
        }
        Value::Table(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|entry| format!("{} = {}", entry.name, write(&entry.node)));
            let entries: Vec<_> = entries.collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}

/// Returns whether two values are the same, wherever they are. The order of a table does not
/// matter.
pub(super) fn is_same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::List(ones), Value::List(others)) => {
            let mut pairs = ones.iter().zip(others);
            ones.len() == others.len() && pairs.all(|(one, other)| is_same(one, other))
        }
        (Value::Table(ones), Value::Table(others)) => {
            let mut ones = ones.iter();
            ones.len() == others.len()
                && ones.all(|entry| {
                    let found = other.get(&entry.name);
                    found.is_some_and(|found| is_same(&entry.node, &found.node))
                })
        }
        (one, other) => one == other,
    }
}
