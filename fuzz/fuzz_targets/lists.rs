//! Texts of lists: each is read whole, or an error names a line of it.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use tower_throttle::{Key, List, Lists};

fuzz_target!(|text: &str| {
    let lists = match Lists::new().from_text(text) {
        Ok(lists) => lists,
        Err(error) => {
            let message = error.to_string();
            let line = message.strip_prefix("line ").and_then(|rest| rest.split(':').next());
            let line: usize = line.expect("a line").parse().expect("a number");
            assert!((1..=text.split('\n').count()).contains(&line));
            return;
        }
    };
    for (word, list) in [("allow", List::Allow), ("deny", List::Deny)] {
        for line in text.trim_start_matches('\u{feff}').split('\n') {
            let mut words = line.split_whitespace();
            if words.next() != Some(word) {
                continue;
            }
            let entry = words.next().expect("an entry");
            // Ranges inside of others may be on the other list.
            if entry == "key" {
                let policy = words.next().expect("a policy");
                let parts: Vec<_> = words.take_while(|part| !part.starts_with('#')).collect();
                // Other parts have a word: `number:7`, for example.
                if parts.iter().all(|part| !part.contains(':')) {
                    let parts = parts.into_iter().map(Key::from);
                    let key = parts.reduce(|all, part| all.and(&part)).expect("a key");
                    assert_eq!(lists.find_key(policy, &key), Some(list));
                }
            } else {
                let (address, _) = entry.split_once('/').unwrap_or((entry, ""));
                let address: IpAddr = address.parse().expect("an address");
                let found = lists.find_ip(address);
                assert!(found.is_some() && (list == List::Deny || found == Some(list)));
            }
        }
    }
    // An address and the same as IPv6 are on one list.
    let v4 = Ipv4Addr::from_bits(text.len() as u32 ^ 0x0a00_0001);
    let mapped = lists.find_ip(v4.to_ipv6_mapped().into());
    assert_eq!(lists.find_ip(v4.into()), mapped);
});
