//! Lists as text: one entry on each line.

use super::{List, entries::Entries};
use crate::{ConfigError, Key};

/// Adds the entries of a text. `file`: where it is from, for errors.
pub(super) fn read(
    entries: &mut Entries,
    text: &[u8],
    file: Option<&str>,
) -> Result<(), ConfigError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        read_line(entries, line).map_err(|error| ConfigError::InList {
            file: file.map(str::to_owned),
            line: number,
            error: Box::new(error),
        })?;
    }
    entries.index();
    Ok(())
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

fn read_line(entries: &mut Entries, line: &[u8]) -> Result<(), ConfigError> {
    let line = std::str::from_utf8(line).map_err(|_| ConfigError::ListLine)?;
    let mut words = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let list = match words.next() {
        None => return Ok(()),
        Some("allow") => List::Allow,
        Some("deny") => List::Deny,
        Some(_) => return Err(ConfigError::ListLine),
    };
    match (words.next(), words.next(), words.next()) {
        (Some("key"), Some(text), None) => entries.add_key(list, &Key::from(text)),
        (Some("number"), Some(text), None) => {
            let key = number(text).ok_or(ConfigError::ListLine)?;
            entries.add_key(list, &key)
        }
        (Some(text), None, None) => match entries.add_network(list, text) {
            // The text may be a key whose line lacks a word: errors show no key.
            Err(ConfigError::ListEntry { .. }) => Err(ConfigError::ListLine),
            result => result,
        },
        _ => Err(ConfigError::ListLine),
    }
}

fn number(text: &str) -> Option<Key> {
    let positive = text.parse().map(|number: u128| Key::from(number));
    let any = positive.or_else(|_| text.parse().map(|number: i64| Key::from(number)));
    any.ok()
}
