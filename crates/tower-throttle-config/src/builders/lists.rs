//! The table `[lists]`.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::Path,
    sync::Arc,
};

use super::{addresses::Addresses, keys, reading::Reading};
use crate::field::Field;
use tower_throttle::{
    ConfigError, Key, List, Lists,
    key::{AddressReader, ClientIp},
};

/// Wrong entries of one list that are reported. Each makes the others be read again.
const MOST_REPORTED: usize = 20;

/// Reads the table. `path`: that of the configuration file.
pub(super) fn read(
    reading: &mut Reading<'_>,
    file: &Field<'_>,
    addresses: &Addresses,
    path: Option<&Path>,
) -> Option<Lists> {
    let table = file.get("lists")?;
    let mut lists = Lists::new().client_address(client_address(reading, &table, addresses));
    if let Some(field) = table.get("allow_ips") {
        lists = add_addresses(reading, lists, &field, |lists, texts| {
            let lists = lists.allow_ips(texts)?;
            lists.validate()?;
            Ok(lists)
        });
    }
    if let Some(field) = table.get("deny_ips") {
        lists = add_addresses(reading, lists, &field, |lists, texts| lists.deny_ips(texts));
    }
    lists = add_keys(reading, lists, &table);
    if let Some(field) = table.get("file") {
        let folder = path.and_then(Path::parent).unwrap_or(Path::new(""));
        // It is read last: its errors have the numbers of lines.
        let more = lists.clone().from_file(folder.join(field.text()?));
        let more = more.and_then(|more| more.validate().map(|()| more.clone()));
        lists = reading.keep(&field, more).unwrap_or(lists);
    }
    Some(lists)
}

/// Returns what reads addresses. After a mistake it is the peer, so that nothing else seems wrong.
fn client_address(
    reading: &mut Reading<'_>,
    table: &Field<'_>,
    addresses: &Addresses,
) -> Arc<dyn AddressReader> {
    let field = table.get("client_address");
    let reader = match &field {
        Some(field) => named_reader(reading, field, addresses),
        None => addresses.client_ip.clone().flatten().map(erased),
    };
    reader.unwrap_or_else(|| Arc::new(addresses.peer))
}

fn named_reader(
    reading: &mut Reading<'_>,
    field: &Field<'_>,
    addresses: &Addresses,
) -> Option<Arc<dyn AddressReader>> {
    match field.word()? {
        ("client_ip", _) => keys::client_ip(reading, field, addresses).map(erased),
        ("reader:", name) => {
            let registered = &reading.readers.client_address;
            let reader = reading.find(field, registered, "client_address", name)?;
            let valid = reader.validate();
            reading.keep(field, valid)?;
            Some(Arc::clone(reader))
        }
        _ => Some(Arc::new(addresses.peer)),
    }
}

fn erased(client_ip: ClientIp) -> Arc<dyn AddressReader> {
    Arc::new(client_ip)
}

/// Adds addresses, and reports each that is wrong.
fn add_addresses(
    reading: &mut Reading<'_>,
    lists: Lists,
    field: &Field<'_>,
    add: impl Fn(Lists, &[&str]) -> Result<Lists, ConfigError>,
) -> Lists {
    let mut items = field.items();
    for _ in 0..MOST_REPORTED {
        let texts: Vec<_> = items.iter().filter_map(Field::text).collect();
        let error = match add(lists.clone(), &texts) {
            Ok(added) => return added,
            Err(error) => error,
        };
        // Of an entry that is there twice, the last one is too much.
        let entry = error.subject();
        let wrong = items.iter().rposition(|item| item.text() == entry);
        let Some(wrong) = wrong.map(|index| items.remove(index)) else {
            reading.problems.push(field.error(&error));
            break;
        };
        reading.problems.push(wrong.error(&error));
    }
    lists
}

/// Adds the keys of both lists, and reports those that are there twice.
fn add_keys(reading: &mut Reading<'_>, lists: Lists, table: &Field<'_>) -> Lists {
    let mut listed = HashMap::new();
    for (list, name) in [(List::Allow, "allow_keys"), (List::Deny, "deny_keys")] {
        for item in table.get(name).iter().flat_map(Field::items) {
            let number = item.whole().map(Key::from);
            let Some(key) = number.or_else(|| item.text().map(Key::from)) else {
                continue;
            };
            match listed.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(list);
                }
                Entry::Occupied(other) => {
                    let lists = add_key(Lists::new(), *other.get(), other.key().clone());
                    let twice = lists.and_then(|lists| add_key(lists, list, other.key().clone()));
                    reading.keep(&item, twice);
                }
            }
        }
    }
    let (allowed, denied): (Vec<_>, Vec<_>) = listed
        .into_iter()
        .partition(|(_, list)| *list == List::Allow);
    let keys = |entries: Vec<(Key, List)>| entries.into_iter().map(|(key, _)| key);
    let added = lists.clone().allow_keys(keys(allowed));
    let added = added.and_then(|lists| lists.deny_keys(keys(denied)));
    reading.keep(table, added).unwrap_or(lists)
}

fn add_key(lists: Lists, list: List, key: Key) -> Result<Lists, ConfigError> {
    match list {
        List::Allow => lists.allow_keys([key]),
        _ => lists.deny_keys([key]),
    }
}
