//! The tables `[client_ip]` and `[peer]`: what these words mean in keys and lists.

use super::reading::Reading;
use crate::field::Field;
use tower_throttle::{
    ConfigError,
    key::{self, ClientIp, KeyExtractor, Peer},
};

/// What reads addresses.
pub(super) struct Addresses {
    /// `None` if the file does not say. `Some(None)` if what it says is wrong.
    pub(super) client_ip: Option<Option<ClientIp>>,
    pub(super) peer: Peer,
}

impl Addresses {
    pub(super) fn read(reading: &mut Reading<'_>, file: &Field<'_>) -> Self {
        let client_ip = file.get("client_ip");
        let peer = file.get("peer").and_then(|table| prefix(&table));
        Self {
            client_ip: client_ip.map(|table| client_ip_of(reading, &table)),
            peer: peer.map_or_else(key::peer, |bits| key::peer().ipv6_prefix(bits)),
        }
    }
}

/// Returns the number of bits that a table sets, which the check has found to be in range.
pub(super) fn prefix(table: &Field<'_>) -> Option<u8> {
    u8::try_from(table.get("ipv6_prefix")?.whole()?).ok()
}

fn client_ip_of(reading: &mut Reading<'_>, table: &Field<'_>) -> Option<ClientIp> {
    let mut is_right = true;
    let mut check =
        |reading: &mut Reading<'_>, field: &Field<'_>, result: Result<(), ConfigError>| {
            is_right &= reading.keep(field, result).is_some();
        };
    let trusted = table.get("trusted")?;
    let ranges: Vec<_> = trusted.items();
    for range in &ranges {
        // Each by itself, to say which one is wrong.
        let alone = key::client_ip(range.text());
        check(reading, range, KeyExtractor::validate(&alone));
    }
    let mut client_ip = key::client_ip(ranges.iter().filter_map(Field::text));
    if is_right {
        // All of them together may be every address.
        is_right = reading
            .keep(&trusted, KeyExtractor::validate(&client_ip))
            .is_some();
    }
    if let Some(field) = table.get("header") {
        client_ip = match field.word()? {
            ("forwarded", _) => client_ip.from_forwarded(),
            ("x_real_ip", _) => client_ip.from_x_real_ip(),
            ("header:", name) => {
                let valid = KeyExtractor::validate(&key::header(name));
                is_right &= reading.keep(&field, valid).is_some();
                client_ip.from_header(name)
            }
            _ => client_ip.from_x_forwarded_for(),
        };
    }
    if let Some(bits) = prefix(table) {
        client_ip = client_ip.ipv6_prefix(bits);
    }
    is_right.then_some(client_ip)
}
