//! Which node serves which slots, as a node of the cluster tells it.

use std::{collections::HashSet, fmt};

use fred::types::{Value, config::Server};

use crate::{StoreError, error::StoreErrorKind};

pub(super) const SLOTS: u16 = 16_384;
/// What a cluster is recommended to have at most.
pub(super) const MOST_NODES: usize = 1_000;
/// The longest name that DNS has.
const LONGEST_HOST: usize = 255;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Address {
    /// An IPv6 address stands without brackets.
    host: String,
    port: u16,
}

impl Address {
    pub(in super::super) fn of(server: &Server) -> Self {
        let host = server.host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port: server.port,
        }
    }

    /// As a node names it. Where it names no host, it means the one that was asked.
    pub(super) fn named(host: &str, port: &str, asked: &Self) -> Option<Self> {
        Self::checked(host, port.parse().ok()?, asked)
    }

    fn checked(host: &str, port: i64, asked: &Self) -> Option<Self> {
        let host = if host.is_empty() { &asked.host } else { host };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if host.len() > LONGEST_HOST || !host.bytes().all(is_host) {
            return None;
        }
        Some(Self {
            host: host.to_owned(),
            port: u16::try_from(port).ok().filter(|port| *port > 0)?,
        })
    }

    /// As the client wants it.
    pub(in super::super) fn server(&self) -> Server {
        if self.host.contains(':') {
            Server::new(format!("[{}]", self.host), self.port)
        } else {
            Server::new(self.host.as_str(), self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// So many slots in a row, and the primary that serves them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) address: Address,
}

/// Reads the reply to CLUSTER SLOTS. Whatever is not exactly such a reply is an error.
pub(super) fn parse(reply: Value, asked: &Address) -> Result<Vec<Range>, StoreError> {
    let Value::Array(entries) = reply else {
        return Err(foreign("it is no list"));
    };
    // Each has one slot at least.
    if entries.len() > usize::from(SLOTS) {
        return Err(foreign("it has more entries than there are slots"));
    }
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some((first, last, host, port)) = entry_parts(&entry) else {
            return Err(foreign("an entry is not one"));
        };
        // A node that does not know the name by which it is to be called.
        if host.as_deref() == Some("?") {
            continue;
        }
        let address = Address::checked(host.as_deref().unwrap_or_default(), port, asked);
        ranges.push(Range {
            first,
            last,
            address: address.ok_or_else(|| foreign("an address is not one"))?,
        });
    }
    ranges.sort_unstable_by_key(|range| range.first);
    let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
    if pairs.any(|(one, next)| one.last >= next.first) {
        return Err(foreign("a slot has two owners"));
    }
    let nodes: HashSet<_> = ranges.iter().map(|range| &range.address).collect();
    if nodes.len() > MOST_NODES {
        return Err(foreign("it has more than 1,000 primaries"));
    }
    // So says a node that is not part of the cluster yet, or not any more.
    if ranges.is_empty() {
        return Err(StoreError::not_sent("the node knows of no slots"));
    }
    Ok(ranges)
}

fn entry_parts(entry: &Value) -> Option<(u16, u16, Option<String>, i64)> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let [
        Value::Integer(first),
        Value::Integer(last),
        Value::Array(primary),
        ..,
    ] = &parts[..]
    else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    if first > last || last >= SLOTS {
        return None;
    }
    let [host, Value::Integer(port), ..] = &primary[..] else {
        return None;
    };
    let host = match host {
        Value::Null => None,
        Value::String(_) | Value::Bytes(_) => Some(host.as_string()?),
        _ => return None,
    };
    Some((first, last, host, *port))
}

fn foreign(why: &'static str) -> StoreError {
    StoreError::with_source(
        StoreErrorKind::ForeignReply,
        format!("the reply to CLUSTER SLOTS: {why}"),
    )
}

#[cfg(test)]
impl Address {
    pub(super) fn example() -> Self {
        Self {
            host: "asked.example".to_owned(),
            port: 7_000,
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn entry(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = vec![host, Value::Integer(port), Value::from("an id")];
        Value::Array(vec![
            Value::Integer(first),
            Value::Integer(last),
            Value::Array(primary.clone()),
            Value::Array(primary),
        ])
    }

    fn told(entries: Vec<Value>) -> Option<Vec<(u16, u16, String)>> {
        let ranges = parse(Value::Array(entries), &Address::example()).ok()?;
        let told = ranges.into_iter();
        Some(
            told.map(|range| (range.first, range.last, range.address.to_string()))
                .collect(),
        )
    }

    #[test]
    fn hosts_in_all_their_forms() {
        let told = told(vec![
            entry(200, 299, "::1".into(), 3),
            entry(0, 99, "10.0.0.1".into(), 1),
            entry(100, 199, Value::Null, 2),
            entry(300, 300, "".into(), 4),
            entry(301, 400, "?".into(), 5),
            entry(16_383, 16_383, "node-1.example".into(), 6),
        ]);
        let told = told.expect("a slot map");
        let addresses: Vec<_> = told
            .iter()
            .map(|(first, _, address)| (*first, &**address))
            .collect();
        let expected = [
            (0, "10.0.0.1:1"),
            (100, "asked.example:2"),
            (200, "::1:3"),
            (300, "asked.example:4"),
            (16_383, "node-1.example:6"),
        ];
        assert_eq!(addresses, expected);
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let host = || Value::from("10.0.0.1");
        for entries in [
            vec![],
            vec![Value::Null],
            vec![entry(0, 16_384, host(), 1)],
            vec![entry(-1, 5, host(), 1)],
            vec![entry(5, 4, host(), 1)],
            vec![entry(0, 5, host(), 1), entry(5, 9, host(), 2)],
            vec![entry(0, 9, host(), 1), entry(3, 4, host(), 1)],
            vec![entry(0, 5, host(), 0)],
            vec![entry(0, 5, host(), 65_536)],
            vec![entry(0, 5, Value::Integer(1), 1)],
            vec![entry(0, 5, "a host".into(), 1)],
            vec![entry(0, 5, "h".repeat(256).into(), 1)],
            vec![entry(0, 5, "?".into(), 1)],
            (0..1_001)
                .map(|slot| entry(slot, slot, host(), slot + 1))
                .collect(),
            (0..16_385).map(|_| entry(1, 1, host(), 1)).collect(),
        ] {
            assert_eq!(told(entries), None);
        }
        let most = (0..1_000).map(|slot| entry(slot, slot, host(), slot + 1));
        assert_eq!(told(most.collect()).map(|ranges| ranges.len()), Some(1_000));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let slot = prop_oneof![-2..20_000_i64, Just(0), Just(16_383), any::<i64>()];
        let leaf = prop_oneof![
            slot.prop_map(Value::Integer),
            ".{0,12}".prop_map(Value::from),
            vec(any::<u8>(), 0..8).prop_map(|bytes| Value::Bytes(bytes.into())),
            Just(Value::Null),
            Just(Value::Boolean(true)),
            any::<f64>().prop_map(Value::Double),
        ];
        leaf.prop_recursive(4, 64, 5, |inner| vec(inner, 0..5).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn whatever_a_server_says(reply in any_value()) {
            if let Ok(ranges) = parse(reply, &Address::example()) {
                prop_assert!(ranges.iter().all(|range| range.first <= range.last && range.last < SLOTS));
            }
        }
    }
}
