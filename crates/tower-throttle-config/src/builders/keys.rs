//! Keys: `header:x-api-key`, a list of keys, `{ all = [..] }`.
//!
//! The key of a request is the same, byte for byte, as that of the same extractor in code. So a
//! limit may move from code into a file, and keeps its buckets.

use std::sync::Arc;

use super::{addresses::Addresses, reading::Reading};
use crate::{
    place::FilePlace,
    tables::{Key as Table, KeyTable, KeyWord},
};
use tower_throttle::{
    ConfigError, Key, RequestHead,
    key::{self, KeyError, KeyExtractor, KeySource},
};

/// An extractor whose type only the file knows.
pub(super) type AnyKey = Arc<dyn KeyExtractor>;

/// Reads a key.
pub(super) fn read(
    reading: &mut Reading<'_>,
    addresses: &Addresses,
    at: &FilePlace,
    key: &Table,
) -> Option<AnyKey> {
    match key {
        Table::Word(word) => named(reading, addresses, at, word),
        Table::FirstOf(keys) => {
            let keys = read_list(reading, addresses, at, keys)?.into_iter();
            keys.reduce(|first, second| Arc::new(KeyExtractor::or(first, second)))
        }
        Table::Table(KeyTable {
            all: Some(parts), ..
        }) => {
            let parts = read_list(reading, addresses, &at.to("all"), parts)?;
            Some(Arc::new(All(parts)))
        }
        Table::Table(KeyTable {
            peer: Some(address),
            ..
        }) => Some(Arc::new(key::peer().ipv6_prefix(address.ipv6_prefix))),
        Table::Table(KeyTable { client_ip, .. }) => {
            let address = client_ip.as_ref()?;
            let client_ip = addresses.client_ip(reading, &at.to("client_ip"))?;
            Some(Arc::new(client_ip.ipv6_prefix(address.ipv6_prefix)))
        }
    }
}

fn read_list(
    reading: &mut Reading<'_>,
    addresses: &Addresses,
    at: &FilePlace,
    keys: &[Table],
) -> Option<Vec<AnyKey>> {
    let keys = keys.iter().enumerate();
    let keys: Vec<_> = keys
        .map(|(index, key)| read(reading, addresses, &at.to(&index), key))
        .collect();
    keys.into_iter().collect()
}

fn named(
    reading: &mut Reading<'_>,
    addresses: &Addresses,
    at: &FilePlace,
    word: &KeyWord,
) -> Option<AnyKey> {
    let extractor: AnyKey = match word {
        KeyWord::Peer => Arc::new(addresses.peer()),
        KeyWord::ClientIp => Arc::new(addresses.client_ip(reading, at)?),
        KeyWord::Header(name) => Arc::new(key::header(name)),
        KeyWord::BearerToken => Arc::new(key::bearer_token()),
        KeyWord::Cookie(name) => Arc::new(key::cookie(name)),
        KeyWord::Route => route(reading, at)?,
        KeyWord::Method => Arc::new(key::method()),
        KeyWord::Global => Arc::new(key::global()),
        KeyWord::Reader(name) => reading.find(at, &reading.readers.key, "key", name)?,
    };
    let valid = extractor.validate();
    reading.keep(at, valid).map(|()| extractor)
}

#[cfg(feature = "axum")]
fn route(_: &mut Reading<'_>, _: &FilePlace) -> Option<AnyKey> {
    Some(Arc::new(key::matched_route()))
}

#[cfg(not(feature = "axum"))]
fn route(reading: &mut Reading<'_>, at: &FilePlace) -> Option<AnyKey> {
    reading.report_feature(at, "`route`", "axum");
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
