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
        return Err(StoreError::unavailable("the node knows of no slots"));
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
