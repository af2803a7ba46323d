//! Callers that are named by their key, such as `text:ann` or `number:42`.

use super::Named;
use crate::{
    Fingerprint, Key,
    key::{typed_address, typed_key},
};

pub(super) fn key<'a>(parts: impl Iterator<Item = &'a str> + Clone) -> Result<Named, &'static str> {
    let mut rest = parts.clone();
    match (rest.next(), rest.next()) {
        (Some(alone), None) => whole(alone),
        _ => typed_key(parts).map(Named::Key),
    }
}

/// Reads a key of one part.
fn whole(text: &str) -> Result<Named, &'static str> {
    let (word, value) = text.split_once(':').unwrap_or(("", text));
    let key = match word {
        "ip" => return typed_address(value).map(Named::Address),
        "fingerprint" => Fingerprint::parse(value)
            .map(Key::from)
            .ok_or("no fingerprint, which has 22 characters")?,
        "everyone" if value.is_empty() => Key::everyone(),
        _ => match Fingerprint::parse(text) {
            Some(fingerprint) => fingerprint.into(),
            None => typed_key([text].into_iter())?,
        },
    };
    Ok(Named::Key(key))
}
