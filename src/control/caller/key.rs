//! Callers that are named by their key, such as `text:ann` or `number:42`.

use std::net::IpAddr;

use super::Named;
use crate::{Fingerprint, Key, key::key_of_address};

pub(super) fn key<'a>(parts: impl Iterator<Item = &'a str> + Clone) -> Result<Named, &'static str> {
    let mut rest = parts.clone();
    if let (Some(alone), None) = (rest.next(), rest.next()) {
        return whole(alone);
    }
    let mut parts = parts.map(part);
    let first = parts.next().ok_or("no caller is named; write one")??;
    let all = parts.try_fold(first, |all, part| Ok(Key::from((all, part?))));
    all.map(Named::Key)
}

/// Reads a key of one part.
fn whole(text: &str) -> Result<Named, &'static str> {
    let (word, value) = text.split_once(':').unwrap_or(("", text));
    let key = match word {
        "ip" => return address(value).map(Named::Address),
        "fingerprint" => Fingerprint::parse(value)
            .map(Key::from)
            .ok_or("no fingerprint, which has 22 characters")?,
        "everyone" if value.is_empty() => Key::everyone(),
        _ => match Fingerprint::parse(text) {
            Some(fingerprint) => fingerprint.into(),
            None => part(text)?,
        },
    };
    Ok(Named::Key(key))
}

/// Reads a part of a key.
fn part(text: &str) -> Result<Key, &'static str> {
    let (word, value) = text.split_once(':').unwrap_or(("", text));
    match word {
        "text" => Ok(Key::from(value)),
        "number" => Key::of_number(value).ok_or("no whole number; write one such as number:42"),
        "ip" => address(value).map(key_of_address),
        "fingerprint" | "everyone" => {
            Err("`fingerprint:` and `everyone:` are whole keys; they cannot be a part of one")
        }
        _ => Ok(Key::from(text)),
    }
}

fn address(text: &str) -> Result<IpAddr, &'static str> {
    let address = text.parse::<IpAddr>();
    address
        .map(|address| address.to_canonical())
        .map_err(|_| "no address; write one such as ip:203.0.113.9")
}
