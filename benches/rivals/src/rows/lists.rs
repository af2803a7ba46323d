//! Allow and deny lists with 10,000 ranges: a lookup alone, and the layer around it.

use std::{
    collections::HashSet,
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Instant,
};

use axum::http::StatusCode;
use tower::Layer;
use tower_throttle::{Lists, Policy, RateLimitLayer, key};

use super::threads;
use crate::{
    callers::{Callers, MANY, address},
    measured::{ROUNDS, SHORT, in_turns},
    on_threads::{call, round},
    peers::{Rate, in_memory, inner},
    table::{Row, Table},
};

const RANGES: usize = 10_000;

pub fn rows(table: &mut Table) {
    let (none, long) = (Lists::new(), long_lists());
    let v4: Vec<IpAddr> = (0..MANY as u64).map(|n| v4(scattered(n)).into()).collect();
    let v6: Vec<IpAddr> = (0..MANY as u64).map(|n| v6(scattered(n)).into()).collect();
    for (family, addresses) in [("IPv4", v4), ("IPv6", v6)] {
        let name = format!("lists: an {family} address among 10,000 ranges of each family");
        let (ours, beside) = (ns_each(&long, &addresses), ns_each(&none, &addresses));
        let row = Row::cost(name, " ns", ours, ("empty lists", beside));
        table.add(row.ours_at_most(100.0, " ns"));
    }
    let callers: Vec<_> = (0..MANY).map(address).collect();
    let policy = Policy::new("0", Rate::Ample.in_memory()).key(key::peer());
    let listed = RateLimitLayer::builder().policy(policy).lists(long);
    let listed = listed.build().expect("a layer").layer(inner());
    let plain = in_memory(Rate::Ample, 1).layer(inner());
    macro_rules! ask {
        ($service:expr) => {{
            let ask = |caller: usize| {
                let allowed = call(&$service, callers[caller]);
                assert_eq!(allowed.status(), StatusCode::OK);
            };
            (0..MANY).for_each(ask);
            ask
        }};
    }
    let (listed, plain) = (ask!(listed), ask!(plain));
    for (who, callers) in [("100,000 callers", MANY), ("one caller", 1)] {
        let callers = Callers::Each(callers);
        for number in [1, 2] {
            let [ours, beside] = in_turns([&|| round(SHORT, number, &callers, listed), &|| {
                round(SHORT, number, &callers, plain)
            }]);
            let name = format!("lists: layer in memory, {who}, {}", threads(number));
            table.add(Row::speed(name, ours, ("without lists", beside)));
        }
    }
}

/// Lists with ranges of many lengths, of which some are nested. No caller is on them.
fn long_lists() -> Lists {
    let v4 = ranges(|number| {
        let bits = 12 + number % 21;
        let first = v4(scattered(number)).to_bits() >> (32 - bits) << (32 - bits);
        format!("{}/{bits}", Ipv4Addr::from_bits(first))
    });
    let v6 = ranges(|number| {
        let bits = 24 + number % 41;
        let first = v6(scattered(number)).to_bits() >> (128 - bits) << (128 - bits);
        format!("{}/{bits}", Ipv6Addr::from_bits(first))
    });
    let lists = Lists::new().client_address(key::peer());
    let lists = lists.deny_ips(v4).and_then(|lists| lists.allow_ips(v6));
    lists.expect("lists")
}

/// Returns the first ranges that differ.
fn ranges(range: impl Fn(u64) -> String) -> Vec<String> {
    let mut known = HashSet::new();
    let new = (0..).map(range).filter(|range| known.insert(range.clone()));
    new.take(RANGES).collect()
}

/// An address from 128.0.0.0 on.
fn v4(number: u64) -> Ipv4Addr {
    Ipv4Addr::from_bits(number as u32 | 1 << 31)
}

/// An address of 2000::/16.
fn v6(number: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(0x2000 << 112 | u128::from(number) << 48 | u128::from(number >> 16))
}

/// Scatters numbers, as SplitMix64 does.
fn scattered(number: u64) -> u64 {
    let mix =
        |number: u64, shift: u32, factor: u64| (number ^ number >> shift).wrapping_mul(factor);
    let number = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = mix(
        mix(number, 30, 0xbf58_476d_1ce4_e5b9),
        27,
        0x94d0_49bb_1331_11eb,
    );
    number ^ number >> 31
}

/// Returns how many nanoseconds one lookup takes: the median of the rounds.
fn ns_each(lists: &Lists, addresses: &[IpAddr]) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            for address in addresses {
                black_box(lists.find_ip(*address));
            }
            started.elapsed().as_nanos() as f64 / addresses.len() as f64
        })
        .collect();
    rounds.sort_unstable_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}
