//! Explains what a layer of a file does with one request.

use std::slice;

use serde::Deserialize;
use serde_json::{Value, json};
use tower_throttle::{
    Key as CallerKey, RequestHead, inspect,
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
    place::FilePlace,
    tables::{Key, When},
    text::write,
};

/// What a layer of a file does with one request, from [`Limits::explain`](crate::Limits::explain).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// What the layer does.
    pub layer: inspect::Explanation,
    /// The conditions of the layer. If one of them fails, it passes the request on.
    pub conditions: Vec<FoundCondition>,
    /// What each of its policies finds in the request, in their order.
    pub policies: Vec<FoundPolicy>,
}

/// What a policy of a file finds in a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundPolicy {
    /// Its conditions.
    pub conditions: Vec<FoundCondition>,
    /// Its keys. The first that finds one counts. Empty for a shared policy.
    pub keys: Vec<FoundKey>,
}

/// A condition of a file, and whether it holds for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundCondition {
    /// The condition as in the file, such as `path = "/api/**"`.
    pub text: String,
    /// Whether it holds. `None`: two servers could understand the request in different ways, so the
    /// limit applies.
    pub holds: Option<bool>,
}

/// A key of a file, and what it finds in a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FoundKey {
    /// The key as in the file, such as `"header:x-api-key"`.
    pub text: String,
    /// The key, or why there is none.
    pub key: Result<CallerKey, KeyError>,
}

impl Config {
    /// Asks each condition and each key of a layer separately, to explain what the layer does.
    pub(crate) fn explain(
        &self,
        layer: &str,
        explained: inspect::Explanation,
        head: &RequestHead<'_>,
    ) -> Explanation {
        let mut reading = Reading::new(self);
        let addresses = Addresses::read(&mut reading);
        let policies = read_all(&mut reading, &addresses);
        let layers = reading.file().layer.as_ref();
        let table = layers.and_then(|layers| layers.get(layer));
        let names = table.and_then(|table| table.common.policies.as_deref());
        let chosen = chosen_by(names, &policies).into_iter();
        let found = chosen.map(|policy| FoundPolicy {
            conditions: conditions_of(&mut reading, &policy.at.to("when"), head),
            keys: keys_of(&mut reading, &addresses, policy, head),
        });
        let policies = found.collect();
        let at = FilePlace::root().to("layer").to(&layer).to("when");
        Explanation {
            layer: explained,
            conditions: conditions_of(&mut reading, &at, head),
            policies,
        }
    }
}

/// Asks each condition of a table separately.
fn conditions_of(
    reading: &mut Reading<'_>,
    at: &FilePlace,
    head: &RequestHead<'_>,
) -> Vec<FoundCondition> {
    let value = at.value_in(&reading.config.document.value);
    let fields = value.and_then(Value::as_object).into_iter().flatten();
    let found = fields.filter_map(|(name, value)| {
        let alone = When::deserialize(json!({ name: value })).ok()?;
        Some(FoundCondition {
            text: format!("{name} = {}", write(value)),
            holds: conditions::read(reading, at, &alone).find(head),
        })
    });
    found.collect()
}

/// Asks each key of a policy separately, to report which one counts.
fn keys_of(
    reading: &mut Reading<'_>,
    addresses: &Addresses,
    FilePolicy { table, at, .. }: &FilePolicy<'_>,
    head: &RequestHead<'_>,
) -> Vec<FoundKey> {
    let at = at.to("key");
    let keys = match at.value_in(&reading.config.document.value) {
        _ if table.shared == Some(true) => &[],
        None => {
            let (text, key) = ("peer".to_owned(), addresses.peer().extract(head));
            return vec![FoundKey { text, key }];
        }
        Some(Value::Array(keys)) => &**keys,
        Some(key) => slice::from_ref(key),
    };
    let keys = keys.iter().filter_map(|value| {
        let extractor = keys::read(reading, addresses, &at, &Key::deserialize(value).ok()?)?;
        Some(FoundKey {
            text: write(value),
            key: extractor.extract(head),
        })
    });
    keys.collect()
}
