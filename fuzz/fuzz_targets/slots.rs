//! The reply to CLUSTER SLOTS: only a map is accepted in which each slot has at most one owner,
//! with a valid address.

#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use tower_throttle::fuzzing;
use tower_throttle_fuzz::value;

fuzz_target!(|data: &[u8]| {
    let reply = value(&mut &*data, 5);
    let entries = match &reply {
        fred::types::Value::Array(entries) => entries.len(),
        _ => 0,
    };
    let Ok(ranges) = fuzzing::slots(reply) else {
        return;
    };
    assert!((1..=entries).contains(&ranges.len()));
    let mut next = 0;
    for (first, last, address) in &ranges {
        assert!(next <= u32::from(*first) && first <= last && *last < 16_384);
        next = u32::from(*last) + 1;
        let (host, port) = address.rsplit_once(':').expect("a port");
        assert_ne!(port.parse::<u16>().expect("a port"), 0);
        assert!((1..=255).contains(&host.len()));
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        assert!(host.bytes().all(is_host), "{host:?}");
    }
    let nodes: HashSet<_> = ranges.iter().map(|range| &range.2).collect();
    assert!(nodes.len() <= 1_000);
});
