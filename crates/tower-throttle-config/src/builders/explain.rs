//! What a layer of a file does with one request.

use tower_throttle::{
    RequestHead,
    key::{KeyError, KeyExtractor},
};

use super::{
    addresses::Addresses,
    conditions, keys,
    policy::{FilePolicy, chosen_by, read_all},
    reading::Reading,
};
use crate::{
    Config,
    explanation::{FoundCondition, FoundKey, FoundPolicy},
    field::Field,
    text,
    tree::{Node, Value},
};

/// What the table of a layer, and those of its policies, find in a request.
pub(crate) type Found = (Vec<FoundCondition>, Vec<FoundPolicy>);

impl Config {
    /// Asks each condition and each key of a layer by itself.
    pub(crate) fn find(&self, layer: &str, head: &RequestHead<'_>) -> Found {
        let file = self.root();
        let mut reading = Reading::new(&self.readers);
        let addresses = Addresses::read(&mut reading, &file);
        let policies = read_all(&mut reading, &file, &addresses);
        let layers = file.get("layer");
        let mut tables = layers.iter().flat_map(Field::entries);
        let table = tables.find(|(name, _)| *name == layer);
        let table = table.map(|(_, table)| table);
        // The layer of a file without layers has no table.
        let Some(table) = table.or_else(|| file.empty_entry("layer", layer)) else {
            return Found::default();
        };
        let chosen = chosen_by(&table, &policies).into_iter();
        let found = chosen.map(|FilePolicy { field, .. }| FoundPolicy {
            conditions: conditions_of(&mut reading, field, head),
            keys: keys_of(&mut reading, field, &addresses, head),
        });
        let found = found.collect();
        (conditions_of(&mut reading, &table, head), found)
    }
}

/// Asks each key of a policy by itself, to say which one counts.
fn keys_of(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    addresses: &Addresses,
    head: &RequestHead<'_>,
) -> Vec<FoundKey> {
    let found = |text, key: Result<_, KeyError>| FoundKey { text, key };
    if table.is_set("shared") {
        return Vec::new();
    }
    let Some(key) = table.get("key") else {
        return vec![found("peer".to_owned(), addresses.peer.extract(head))];
    };
    let items = key.items();
    let keys = items.iter().filter_map(|item| {
        let extractor = keys::read(reading, item, addresses)?;
        Some(found(text::write(item.node), extractor.extract(head)))
    });
    keys.collect()
}

/// Asks each condition of a table by itself.
fn conditions_of(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    head: &RequestHead<'_>,
) -> Vec<FoundCondition> {
    let Some(when) = table.get("when") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in when.node.entries() {
        let alone = Node {
            value: Value::Table(vec![entry.clone()]),
            place: entry.place,
        };
        let field = Field {
            node: &alone,
            form: when.form,
            path: when.path.clone(),
        };
        found.push(FoundCondition {
            text: format!("{} = {}", entry.name, text::write(&entry.node)),
            holds: conditions::read(reading, &field).holds(head),
        });
    }
    found
}
