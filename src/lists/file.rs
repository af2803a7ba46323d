//! Lists as text: one entry on each line.

use super::{List, entries::Entries};
use crate::{ConfigError, key::typed_key, util::network};

/// Adds the entries of a text. `file`: where it is from, for errors.
pub(super) fn read(
    entries: &mut Entries,
    text: &[u8],
    file: Option<&str>,
) -> Result<(), ConfigError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        read_line(entries, line).map_err(|error| match file {
            Some(file) => error.in_line(&format!("{file}:{number}")),
            None => error.in_line(&format!("line {number}")),
        })?;
    }
    entries.index();
    Ok(())
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

fn read_line(entries: &mut Entries, line: &[u8]) -> Result<(), ConfigError> {
    let line = std::str::from_utf8(line).map_err(|_| invalid_line())?;
    let mut words = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let list = match words.next() {
        None => return Ok(()),
        Some("allow") => List::Allow,
        Some("deny") => List::Deny,
        Some(_) => return Err(invalid_line()),
    };
    match (words.next(), words.next()) {
        (Some("key"), Some(policy)) => {
            let key = typed_key(words).map_err(|_| invalid_line())?;
            entries.add_key(list, policy, &key)
        }
        // Another text may be a key whose line lacks a word: errors show no key.
        (Some(text), None) if network::parse(text).is_some() => entries.add_network(list, text),
        _ => Err(invalid_line()),
    }
}

fn invalid_line() -> ConfigError {
    ConfigError::new(
        "list-line",
        "no entry of a list; write `allow` or `deny`, and then an address, a CIDR range, or `key`, the name of a policy and a key such as `ann` or `number:42`",
    )
}
