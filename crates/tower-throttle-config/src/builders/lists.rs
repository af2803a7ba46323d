//! The table `[lists]`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    addresses::Addresses,
    reading::{Reading, field},
};
use crate::{
    place::FilePlace,
    suggest::{proposal, unknown_policy},
    tables::{self, ClientAddress, ListedKey, ListedKeys, Text},
};
use tower_throttle::{
    Key, List, Lists,
    key::{self, AddressReader, ClientIp},
};

/// Wrong entries of one list that are reported. Each makes the others be read again.
const MOST_REPORTED: usize = 20;

/// Reads the table.
pub(super) fn read(reading: &mut Reading<'_>, addresses: &Addresses) -> Option<Lists> {
    let (table, at) = (
        reading.file().lists.as_ref()?,
        FilePlace::root().to("lists"),
    );
    let client_address = client_address(reading, addresses, &at, table);
    let mut lists = Lists::new().client_address(client_address);
    lists = add_addresses(reading, lists, List::Allow, field!(at, table, allow_ips));
    lists = add_addresses(reading, lists, List::Deny, field!(at, table, deny_ips));
    lists = add_keys(reading, lists, &at, table);
    if let Some(path) = reading.config.file_of_lists() {
        // It is read last: its errors have the numbers of lines.
        let more = lists.clone().from_file(path);
        let more = more.and_then(|more| more.validate().map(|()| more.clone()));
        lists = reading.keep(&at.to("file"), more).unwrap_or(lists);
        report_unknown(reading, &at.to("file"), &lists);
    }
    if matches!(table.client_address, None | Some(ClientAddress::ClientIp)) {
        report_proxies(reading, &at, table, &lists);
    }
    Some(lists)
}

/// Reports trusted proxies in an allowed range. A range within the trusted ones is an error of the
/// lists themselves.
fn report_proxies(reading: &mut Reading<'_>, at: &FilePlace, table: &tables::Lists, lists: &Lists) {
    let client_ip = reading.file().client_ip.iter();
    for Text(range) in client_ip.flat_map(|table| &table.trusted) {
        let proxies = key::client_ip([range]);
        let starts = proxies.trusted_ranges().filter_map(|range| {
            let start = range.split('/').next()?;
            start.parse().ok()
        });
        let mut allowed = starts.filter(|start| lists.find_ip(*start) == Some(List::Allow));
        let Some(start) = allowed.next() else {
            continue;
        };
        let has_it = |text: &Text| {
            let alone = Lists::new().allow_ips([&*text.0]);
            alone.is_ok_and(|alone| alone.find_ip(start).is_some())
        };
        let index = table.allow_ips.iter().flatten().position(has_it);
        let at = index.map_or_else(|| at.to("file"), |index| at.to("allow_ips").to(&index));
        let message = format!(
            "the trusted proxies {range:?} are in an allowed range, so a client behind them could claim an address in it; allow ranges of clients, or trust the addresses of your proxies alone"
        );
        reading.report(&at, "allows-trusted-proxies", message);
    }
}

/// Returns the reader of addresses. After a mistake it is the peer, so that nothing else seems
/// wrong.
fn client_address(
    reading: &mut Reading<'_>,
    addresses: &Addresses,
    at: &FilePlace,
    table: &tables::Lists,
) -> Arc<dyn AddressReader> {
    let at = at.to("client_address");
    let erased = |client_ip: ClientIp| Arc::new(client_ip) as Arc<dyn AddressReader>;
    let reader = match &table.client_address {
        Some(ClientAddress::ClientIp) => addresses.client_ip(reading, &at).map(erased),
        Some(ClientAddress::Reader(name)) => {
            let registered = &reading.readers.client_address;
            let reader = reading.find(&at, registered, "client_address", name);
            reader.filter(|reader| reading.keep(&at, reader.validate()).is_some())
        }
        Some(ClientAddress::Peer) => None,
        None => addresses.configured_client_ip().map(erased),
    };
    reader.unwrap_or_else(|| Arc::new(addresses.peer()))
}

/// Adds addresses, and reports each that is wrong.
fn add_addresses(
    reading: &mut Reading<'_>,
    lists: Lists,
    list: List,
    (at, texts): (&FilePlace, Option<&Vec<Text>>),
) -> Lists {
    let items = texts.into_iter().flatten().map(|text| &*text.0);
    let mut items: Vec<_> = items.enumerate().collect();
    for _ in 0..MOST_REPORTED {
        let (lists, texts) = (lists.clone(), items.iter().map(|(_, text)| *text));
        let added = match list {
            List::Allow => lists.allow_ips(texts),
            _ => lists.deny_ips(texts),
        };
        let error = match added.and_then(|lists| lists.validate().map(|()| lists.clone())) {
            Ok(added) => return added,
            Err(error) => error,
        };
        // If an entry is there twice, the last one is reported.
        let entry = error.subject();
        let wrong = items.iter().rposition(|(_, text)| Some(*text) == entry);
        let Some((index, _)) = wrong.map(|index| items.remove(index)) else {
            reading.report_error(at, &error);
            break;
        };
        reading.report_error(&at.to(&index), &error);
    }
    lists
}

/// Adds the keys of both lists, and reports those that are there twice.
fn add_keys(
    reading: &mut Reading<'_>,
    lists: Lists,
    at: &FilePlace,
    table: &tables::Lists,
) -> Lists {
    let mut listed = HashMap::new();
    let both = [
        (List::Allow, "allow_keys", &table.allow_keys),
        (List::Deny, "deny_keys", &table.deny_keys),
    ];
    for (list, name, keys) in both {
        for (policy, keys) in keys.iter().flat_map(|ListedKeys(keys)| keys) {
            let at = at.to(&name).to(policy);
            for (index, key) in keys.iter().enumerate() {
                let key = match key {
                    ListedKey::Text(text) => Key::from(&text.0),
                    ListedKey::Number(number) => Key::from(*number),
                };
                let message = match listed.insert((policy, key), list) {
                    None => continue,
                    Some(other) if other == list => "a key is listed twice; remove one",
                    Some(_) => "a key is on the allow list and on the deny list; remove one",
                };
                reading.report(&at.to(&index), "listed-twice", message);
            }
        }
    }
    let mut listed = listed.into_iter();
    let added = listed.try_fold(lists.clone(), |lists, ((policy, key), list)| match list {
        List::Allow => lists.allow_keys(policy, [key]),
        _ => lists.deny_keys(policy, [key]),
    });
    reading.keep(at, added).unwrap_or(lists)
}

/// Reports policies in the file of lists that the configuration does not have.
fn report_unknown(reading: &mut Reading<'_>, at: &FilePlace, lists: &Lists) {
    let policies = &reading.file().policy;
    let known: Vec<&str> = policies.iter().map(|policy| &*policy.name.0).collect();
    let names: HashSet<&str> = known.iter().copied().collect();
    let listed = lists.policies().into_iter();
    let unknown = listed.filter(|name| !names.contains(&**name));
    for name in unknown.take(MOST_REPORTED) {
        let (code, message) = unknown_policy(&name, &proposal(&name, &known));
        reading.report(at, code, message);
    }
}
