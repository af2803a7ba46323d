//! The reply to CLUSTER SLOTS: which node serves which slots.

use std::{collections::HashSet, ops::RangeInclusive};

use crate::{
    StoreError,
    error::StoreErrorKind,
    store::redis::{
        address::Address,
        client_reply::{RedisError, Reply},
    },
};

pub(super) const SLOTS: u16 = 16_384;
/// The recommended maximum for a cluster.
pub(super) const MAX_PRIMARIES: usize = 1_000;

/// Explains the error of a server that has no slots.
pub(super) fn explained(error: StoreError) -> StoreError {
    let cause = RedisError::of(&error).map(|error| &*error.0);
    match cause.is_some_and(|details| details.contains("cluster support disabled")) {
        true => {
            let cause = "it is no node of a cluster: connect with redis://";
            StoreError::with_source(StoreErrorKind::Refused, cause)
        }
        false => error,
    }
}

/// Returns slots in a row, and the primary that serves them. A reply of any other form is an error.
/// `asked`: the node that replied.
pub(crate) fn parse(
    reply: Reply,
    asked: &Address,
) -> Result<Vec<(RangeInclusive<u16>, Address)>, StoreError> {
    let Reply::Array(entries) = reply else {
        return Err(foreign("not a list"));
    };
    // Each has at least one slot.
    if entries.len() > usize::from(SLOTS) {
        return Err(foreign("it has more entries than there are slots"));
    }
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some((first, last, host, port)) = entry_parts(&entry) else {
            return Err(foreign("a malformed entry"));
        };
        // A node that does not know its own announced name.
        if host.as_deref() == Some("?") {
            continue;
        }
        let address = Address::checked(host.as_deref().unwrap_or_default(), port, asked);
        let address = address.ok_or_else(|| foreign("a malformed address"))?;
        ranges.push((first..=last, address));
    }
    ranges.sort_unstable_by_key(|(slots, _)| *slots.start());
    let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
    if pairs.any(|((one, _), (next, _))| one.end() >= next.start()) {
        return Err(foreign("a slot has two owners"));
    }
    let nodes: HashSet<_> = ranges.iter().map(|(_, address)| address).collect();
    if nodes.len() > MAX_PRIMARIES {
        return Err(foreign("it has more than 1,000 primaries"));
    }
    // This is the reply of a node that has not joined the cluster yet, or has left it.
    if ranges.is_empty() {
        return Err(StoreError::not_sent("the node knows no slots"));
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

    fn parsed(entries: Vec<Reply>) -> Option<Vec<(u16, u16, String)>> {
        let ranges = parse(Reply::Array(entries), &Address::new("asked.example", 7_000)).ok()?;
        let ranges = ranges.into_iter();
        Some(
            ranges
                .map(|(slots, address)| (*slots.start(), *slots.end(), address.to_string()))
                .collect(),
        )
    }

    #[test]
    fn hosts_are_read_in_all_their_forms() {
        let parsed = parsed(vec![
            entry(200, 299, text("::1"), 3),
            entry(0, 99, text("10.0.0.1"), 1),
            entry(100, 199, Reply::Nil, 2),
            entry(300, 300, text(""), 4),
            entry(301, 400, text("?"), 5),
            entry(16_383, 16_383, text("node-1.example"), 6),
        ]);
        let parsed = parsed.expect("a slot map");
        let addresses: Vec<_> = parsed
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
    fn impossible_slot_maps_are_errors() {
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
            assert_eq!(parsed(entries), None);
        }
        let most = (0..1_000).map(|slot| entry(slot, slot, host(), slot + 1));
        assert_eq!(
            parsed(most.collect()).map(|ranges| ranges.len()),
            Some(1_000)
        );
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
        fn any_reply_is_a_slot_map_or_an_error(reply in any_value()) {
            if let Ok(ranges) = parse(reply, &Address::new("asked.example", 7_000)) {
                prop_assert!(ranges.iter().all(|(slots, _)| !slots.is_empty() && *slots.end() < SLOTS));
            }
        }
    }
}
