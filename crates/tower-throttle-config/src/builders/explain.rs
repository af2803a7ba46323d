//! What a layer of a file does with one request.

use std::slice;

use serde::Deserialize;
use serde_json::Value;
use tower_throttle::{RequestHead, key::KeyExtractor};

use super::{
    addresses::Addresses,
    conditions, keys,
    policy::{FilePolicy, chosen_by, read_all},
    reading::Reading,
};
use crate::{
    Config,
    document::At,
    explanation::{FoundCondition, FoundKey, FoundPolicy},
    tables::Key,
    text::write,
};

/// What the table of a layer, and those of its policies, find in a request.
pub(crate) type Found = (Vec<FoundCondition>, Vec<FoundPolicy>);

impl Config {
    /// Asks each condition and each key of a layer by itself.
    pub(crate) fn find(&self, layer: &str, head: &RequestHead<'_>) -> Found {
        let mut reading = Reading::new(self);
        reading.addresses = Addresses::read(&mut reading);
        let policies = read_all(&mut reading);
        let table = reading
            .file()
            .layer
            .as_ref()
            .and_then(|layers| layers.get(layer));
        let names = table.and_then(|table| table.common.policies.as_deref());
        let chosen = chosen_by(names, &policies).into_iter();
        let found = chosen.map(|policy| FoundPolicy {
            conditions: conditions::explain(&mut reading, &policy.at.to("when"), head),
            keys: keys_of(&mut reading, policy, head),
        });
        let found = found.collect();
        let at = At::file().to("layer").to(layer).to("when");
        (conditions::explain(&mut reading, &at, head), found)
    }
}

/// Asks each key of a policy by itself, to say which one counts.
fn keys_of(
    reading: &mut Reading<'_>,
    FilePolicy { table, at, .. }: &FilePolicy<'_>,
    head: &RequestHead<'_>,
) -> Vec<FoundKey> {
    let at = at.to("key");
    let keys = match at.value_in(&reading.config.document.value) {
        _ if table.shared == Some(true) => &[],
        None => {
            let key = reading.addresses.peer().extract(head);
            return vec![FoundKey {
                text: "peer".to_owned(),
                key,
            }];
        }
        Some(Value::Array(keys)) => &**keys,
        Some(key) => slice::from_ref(key),
    };
    let keys = keys.iter().filter_map(|value| {
        let extractor = keys::read(reading, &at, &Key::deserialize(value).ok()?)?;
        Some(FoundKey {
            text: write(value),
            key: extractor.extract(head),
        })
    });
    keys.collect()
}
