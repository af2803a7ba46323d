//! Which node serves which slots, as a node of the cluster tells it.

use std::{collections::HashSet, fmt};

use crate::{StoreError, error::StoreErrorKind, store::redis::server::Reply};

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
    pub(in super::super) fn new(host: &str, port: u16) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
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

    pub(in super::super) fn host(&self) -> &str {
        &self.host
    }

    pub(in super::super) const fn port(&self) -> u16 {
        self.port
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
pub(super) fn parse(reply: Reply, asked: &Address) -> Result<Vec<Range>, StoreError> {
    let Reply::Array(entries) = reply else {
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

fn entry_parts(entry: &Reply) -> Option<(u16, u16, Option<String>, i64)> {
    let Reply::Array(parts) = entry else {
        return None;
    };
    let [
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Array(primary),
        ..,
    ] = &parts[..]
    else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    if first > last || last >= SLOTS {
        return None;
    }
    let [host, Reply::Integer(port), ..] = &primary[..] else {
        return None;
    };
    let host = match host {
        Reply::Nil => None,
        Reply::Text(host) => Some(host.clone()),
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

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    fn entry(first: i64, last: i64, host: Reply, port: i64) -> Reply {
        let primary = vec![host, Reply::Integer(port), text("an id")];
        Reply::Array(vec![
            Reply::Integer(first),
            Reply::Integer(last),
            Reply::Array(primary.clone()),
            Reply::Array(primary),
        ])
    }

    fn told(entries: Vec<Reply>) -> Option<Vec<(u16, u16, String)>> {
        let ranges = parse(Reply::Array(entries), &Address::example()).ok()?;
        let told = ranges.into_iter();
        Some(
            told.map(|range| (range.first, range.last, range.address.to_string()))
                .collect(),
        )
    }

    #[test]
    fn hosts_in_all_their_forms() {
        let told = told(vec![
            entry(200, 299, text("::1"), 3),
            entry(0, 99, text("10.0.0.1"), 1),
            entry(100, 199, Reply::Nil, 2),
            entry(300, 300, text(""), 4),
            entry(301, 400, text("?"), 5),
            entry(16_383, 16_383, text("node-1.example"), 6),
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
        let host = || text("10.0.0.1");
        for entries in [
            vec![],
            vec![Reply::Nil],
            vec![entry(0, 16_384, host(), 1)],
            vec![entry(-1, 5, host(), 1)],
            vec![entry(5, 4, host(), 1)],
            vec![entry(0, 5, host(), 1), entry(5, 9, host(), 2)],
            vec![entry(0, 9, host(), 1), entry(3, 4, host(), 1)],
            vec![entry(0, 5, host(), 0)],
            vec![entry(0, 5, host(), 65_536)],
            vec![entry(0, 5, Reply::Integer(1), 1)],
            vec![entry(0, 5, text("a host"), 1)],
            vec![entry(0, 5, text(&"h".repeat(256)), 1)],
            vec![entry(0, 5, text("?"), 1)],
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

    fn any_value() -> impl Strategy<Value = Reply> {
        let slot = prop_oneof![-2..20_000_i64, Just(0), Just(16_383), any::<i64>()];
        let leaf = prop_oneof![
            slot.prop_map(Reply::Integer),
            ".{0,12}".prop_map(Reply::Text),
            Just(Reply::Nil),
            Just(Reply::Other),
        ];
        leaf.prop_recursive(4, 64, 5, |inner| vec(inner, 0..5).prop_map(Reply::Array))
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
