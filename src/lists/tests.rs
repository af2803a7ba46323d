//! Lookups compared with a scan of all ranges, and texts of any bytes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use proptest::{collection::vec, prelude::*};

use super::{Entries, List, file};

/// Returns the list of an address by looking at each range.
fn scan(networks: &BTreeMap<IpNet, List>, address: IpAddr) -> Option<List> {
    let address = address.to_canonical();
    let holds = |network: &IpNet| {
        let prefix = u32::from(network.prefix_len());
        match (address, network.addr()) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros() >= prefix
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros() >= prefix
            }
            _ => false,
        }
    };
    let found = networks.iter().filter(|(network, _)| holds(network));
    // The allow list is the smaller value.
    found
        .map(|(_, list)| *list)
        .min_by_key(|list| *list == List::Deny)
}

fn range(address: impl Into<IpAddr>, prefix: u8) -> IpNet {
    IpNet::new(address.into(), prefix).expect("a prefix")
}

/// Networks whose addresses share most of their bits, so that many are nested and adjacent.
fn network() -> impl Strategy<Value = (IpNet, List)> {
    let v4 = (any::<u8>(), 1_u8..=32)
        .prop_map(|(last, prefix)| range(Ipv4Addr::new(10, 0, last >> 4, last << 4), prefix));
    let v6 = (any::<u8>(), 1_u8..=128).prop_map(|(last, prefix)| {
        range(
            Ipv6Addr::new(0x2001, 0xdb8, 0, last.into(), 0, 0, 0, last.into()),
            prefix,
        )
    });
    let ends = (any::<bool>(), 1_u8..=32).prop_map(|(is_last, prefix)| {
        range(
            Ipv4Addr::from_bits(if is_last { u32::MAX } else { 0 }),
            prefix,
        )
    });
    let ends_6 = (any::<bool>(), 1_u8..=128).prop_map(|(is_last, prefix)| {
        range(
            Ipv6Addr::from_bits(if is_last { u128::MAX } else { 0 }),
            prefix,
        )
    });
    let list = prop_oneof![Just(List::Allow), Just(List::Deny)];
    let network = prop_oneof![4 => v4, 4 => v6, 1 => ends, 1 => ends_6];
    (network, list).prop_map(|(network, list)| (network.trunc(), list))
}

/// The first and the last address of a range, and those beside them.
fn addresses_at(network: &IpNet) -> Vec<IpAddr> {
    let [first, last] = [network.network(), network.broadcast()].map(super::entries::bits);
    let numbers = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
    let address = |number: u128| -> IpAddr {
        match network.addr() {
            IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
        }
    };
    numbers.map(address).into()
}

fn entries(networks: &BTreeMap<IpNet, List>) -> Entries {
    let mut entries = Entries::default();
    for (network, list) in networks {
        entries
            .add_network(*list, &network.to_string())
            .expect("a network");
    }
    entries.index();
    entries
}

proptest! {
    #[test]
    fn an_address_is_on_the_list_that_a_scan_of_all_ranges_finds(
        networks in vec(network(), 0..60),
        v4 in any::<u32>(),
        v6 in any::<u128>(),
    ) {
        // Of ranges that occur twice, the last one counts.
        let networks: BTreeMap<IpNet, List> = networks.into_iter().collect();
        let entries = entries(&networks);
        let mut addresses: Vec<IpAddr> = networks.keys().flat_map(addresses_at).collect();
        addresses.push(Ipv4Addr::from_bits(v4).into());
        addresses.push(Ipv6Addr::from_bits(v6).into());
        for address in addresses {
            let found = entries.find_address(address);
            prop_assert_eq!(found, scan(&networks, address), "{}", address);
            if let IpAddr::V4(v4) = address {
                prop_assert_eq!(entries.find_address(v4.to_ipv6_mapped().into()), found);
            }
        }
    }

    #[test]
    fn no_bytes_crash_the_parser(text in vec(any::<u8>(), 0..400)) {
        is_read_or_names_a_line(&text);
    }

    /// Nearly valid lines reach further.
    #[test]
    fn no_lines_crash_the_parser(
        words in vec(
            prop_oneof![
                Just("allow"), Just("deny"), Just("key"), Just("api"), Just("\n"), Just("\r\n"),
                Just("#"), Just("10.0.0.0/8"), Just("10.0.0.1/8"), Just("::ffff:10.0.0.0/104"),
                Just("::/0"), Just("2001:db8::/129"), Just("2001:db8::/32"), Just("text:"),
                Just("number:340282366920938463463374607431768211456"), Just("ip:::"), Just("\u{feff}"), Just("/"),
            ],
            0..40,
        ),
    ) {
        is_read_or_names_a_line(words.join(" ").as_bytes());
    }
}

fn is_read_or_names_a_line(text: &[u8]) {
    let lines = text.split(|byte| *byte == b'\n').count();
    if let Err(error) = file::read(&mut Entries::default(), text, None) {
        let message = error.to_string();
        let line = message
            .strip_prefix("line ")
            .and_then(|rest| rest.split(':').next());
        let line = line.and_then(|line| line.parse().ok());
        assert!(
            line.is_some_and(|line| (1..=lines).contains(&line)),
            "{message}"
        );
    }
}
