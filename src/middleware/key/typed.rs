//! Keys as operators write them: `ann`, `text:ann`, `number:42`, `ip:203.0.113.9`.

use std::net::SocketAddr;

use super::{Key, key_of_address};
use crate::util::network;

/// Reads a key of one part or several.
///
/// The error repeats nothing of the text, which may be a credential.
pub(crate) fn typed_key<'a>(mut parts: impl Iterator<Item = &'a str>) -> Result<Key, &'static str> {
    let first = part(parts.next().ok_or(NO_KEY)?)?;
    parts.try_fold(first, |all, text| Ok(all.and(&part(text)?)))
}

const NO_KEY: &str = "no caller is named; write one";

/// Reads a part of a key.
fn part(text: &str) -> Result<Key, &'static str> {
    let (word, value) = text.split_once(':').unwrap_or(("", text));
    let text = match word {
        "text" => value,
        "number" => {
            let key = Key::of_number(value);
            return key.ok_or("no whole number; write one such as number:42");
        }
        "ip" => return typed_address(value).map(key_of_address),
        "fingerprint" | "everyone" => {
            return Err(
                "`fingerprint:` and `everyone:` are whole keys; they cannot be a part of one",
            );
        }
        _ => text,
    };
    match text.is_empty() {
        true => Err("it is empty; write a key such as ann or number:42"),
        false => Ok(Key::from(text)),
    }
}

/// Reads an address.
pub(crate) fn typed_address(text: &str) -> Result<SocketAddr, &'static str> {
    network::address(text).ok_or("no address; write one such as ip:203.0.113.9")
}
