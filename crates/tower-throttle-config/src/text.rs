//! Values of a file as TOML in one line.

use serde_json::Value;

/// Writes a value.
pub(super) fn write(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(write).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(name, value)| format!("{name} = {}", write(value)));
            let entries: Vec<_> = entries.collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Value::String(text) => format!("{text:?}"),
        value => value.to_string(),
    }
}
