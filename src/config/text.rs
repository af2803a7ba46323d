//! Values of a file as TOML in one line.

use crate::config::tree::{Node, Value};

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
