//! Keys: `header:x-api-key`, a list of keys, `{ all = [..] }`.
//!
//! The key of a request is the same, byte for byte, as that of the same extractor in code. So a
//! limit may move from code into a file, and keeps its buckets.

use std::sync::Arc;

use super::{
    addresses::{self, Addresses},
    reading::Reading,
};
use crate::{field::Field, problem::Code};
use tower_throttle::{
    ConfigError, Key, RequestHead,
    key::{self, KeyError, KeyExtractor, KeySource},
};

/// An extractor whose type only the file knows.
pub(super) type AnyKey = Arc<dyn KeyExtractor>;

/// Reads a key.
pub(super) fn read(
    reading: &mut Reading<'_>,
    field: &Field<'_>,
    addresses: &Addresses,
) -> Option<AnyKey> {
    if let Some((word, rest)) = field.word() {
        return named(reading, field, addresses, word, rest);
    }
    if field.table().is_none() {
        let keys = read_list(reading, field, addresses)?;
        let first_that_is_there = keys
            .into_iter()
            .reduce(|first, second| Arc::new(KeyExtractor::or(first, second)));
        return first_that_is_there;
    }
    if let Some(parts) = field.get("all") {
        let parts = read_list(reading, &parts, addresses)?;
        return Some(Arc::new(All(parts)));
    }
    if let Some(table) = field.get("peer") {
        return Some(Arc::new(
            key::peer().ipv6_prefix(addresses::prefix(&table)?),
        ));
    }
    let table = field.get("client_ip")?;
    let client_ip = client_ip(reading, &table, addresses)?;
    Some(Arc::new(client_ip.ipv6_prefix(addresses::prefix(&table)?)))
}

fn read_list(
    reading: &mut Reading<'_>,
    field: &Field<'_>,
    addresses: &Addresses,
) -> Option<Vec<AnyKey>> {
    let keys = field.items();
    let keys: Vec<_> = keys
        .iter()
        .map(|key| read(reading, key, addresses))
        .collect();
    keys.into_iter().collect()
}

/// Makes an extractor from a word and what follows it.
fn named(
    reading: &mut Reading<'_>,
    field: &Field<'_>,
    addresses: &Addresses,
    word: &str,
    rest: &str,
) -> Option<AnyKey> {
    let extractor: AnyKey = match word {
        "client_ip" => Arc::new(client_ip(reading, field, addresses)?),
        "header:" => Arc::new(key::header(rest)),
        "bearer_token" => Arc::new(key::bearer_token()),
        "cookie:" => Arc::new(key::cookie(rest)),
        "method" => Arc::new(key::method()),
        "global" => Arc::new(key::global()),
        "reader:" => {
            let registered = &reading.readers.key;
            Arc::clone(reading.find(field, registered, "key", rest)?)
        }
        "route" => route(reading, field)?,
        _ => Arc::new(addresses.peer),
    };
    let valid = extractor.validate();
    reading.keep(field, valid).map(|()| extractor)
}

pub(super) fn client_ip(
    reading: &mut Reading<'_>,
    field: &Field<'_>,
    addresses: &Addresses,
) -> Option<key::ClientIp> {
    match &addresses.client_ip {
        Some(client_ip) => client_ip.clone(),
        None => {
            let message = "`client_ip` without a table `[client_ip]`; add it with the addresses of your proxies in `trusted`, or use `peer`";
            reading.report(field, Code::MissingField, message.to_owned());
            None
        }
    }
}

#[cfg(feature = "axum")]
fn route(_: &mut Reading<'_>, _: &Field<'_>) -> Option<AnyKey> {
    Some(Arc::new(key::matched_route()))
}

#[cfg(not(feature = "axum"))]
fn route(reading: &mut Reading<'_>, field: &Field<'_>) -> Option<AnyKey> {
    reading.report_feature(field, "`route`", "axum");
    None
}

/// Several keys together: a tuple of any length.
#[derive(Clone)]
struct All(Vec<AnyKey>);

impl KeyExtractor for All {
    fn extract(&self, head: &RequestHead<'_>) -> Result<Key, KeyError> {
        let mut parts = self.0.iter();
        parts.try_fold(Key::everyone(), |key, part| {
            Ok(key.and(&part.extract(head)?))
        })
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.iter().try_for_each(|part| part.validate())
    }

    fn source(&self) -> KeySource {
        KeySource::All(self.0.iter().map(|part| part.source()).collect())
    }
}
