//! The bodies of requests.
//!
//! A problem names the field and what it has to be. It repeats nothing that was sent: that may be a
//! key.

use std::str::FromStr;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::error::Category;
use tower_throttle::{
    ConfigError, Quota,
    control::{Caller, End, Mode},
};

use crate::problem::{Code, Problem};

/// A caller, where to look for it, and its quota where each request chooses it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) caller: CallerField,
    pub(crate) policy: Option<String>,
    pub(crate) limiter: Option<String>,
    pub(crate) tier: Option<Parsed<Quota>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ban {
    pub(super) caller: CallerField,
    pub(super) policy: String,
    pub(super) r#for: Parsed<End>,
    pub(super) reason: Option<Note>,
    pub(super) label: Option<Note>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Override {
    pub(super) caller: CallerField,
    pub(super) policy: String,
    pub(super) quota: Parsed<Quota>,
    pub(super) r#for: Parsed<End>,
    pub(super) reason: Option<Note>,
    pub(super) label: Option<Note>,
}

/// The body of calls that remove an entry of a caller.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfCaller {
    pub(super) caller: CallerField,
    pub(super) policy: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetMode {
    pub(super) policy: String,
    #[serde(with = "ModeField")]
    pub(super) mode: Mode,
    pub(super) r#for: Option<Parsed<End>>,
    pub(super) reason: Option<Note>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClearMode {
    pub(super) policy: String,
}

#[derive(Deserialize)]
#[serde(remote = "Mode", rename_all = "lowercase")]
enum ModeField {
    Enforce,
    Shadow,
    Off,
}

/// A text, or several for a key of several parts.
#[derive(Deserialize)]
#[serde(try_from = "Parts")]
pub(crate) struct CallerField(pub(crate) Caller);

#[derive(Deserialize)]
#[serde(untagged, expecting = "it has to be a text, or a list of texts")]
enum Parts {
    One(String),
    Several(Vec<String>),
}

impl TryFrom<Parts> for CallerField {
    type Error = String;

    fn try_from(parts: Parts) -> Result<Self, String> {
        match parts {
            Parts::One(text) => caller(&[&text]),
            Parts::Several(texts) => caller(&texts),
        }
        .map(Self)
    }
}

/// Reads the parts of a caller.
pub(crate) fn caller(parts: &[impl AsRef<str>]) -> Result<Caller, String> {
    // An empty text is mostly a value that a script did not find.
    if parts.iter().all(|part| part.as_ref().is_empty()) {
        return Err("it is empty; write \"text:\" if you mean the empty key".to_owned());
    }
    Caller::parse(parts).map_err(|error| {
        let what = error.to_string();
        what.strip_prefix("caller: ").unwrap_or(&what).to_owned()
    })
}

/// A quota, or when a change ends.
#[derive(Clone, Copy)]
pub(crate) struct Parsed<T>(pub(crate) T);

impl<'de, T: FromStr<Err = ConfigError> + Example> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let text = String::deserialize(json)?;
        text.parse().map(Self).map_err(|error| match error.span() {
            // Its message repeats the text.
            Some(at) => D::Error::custom(format!(
                "it is not understood from byte {} on; write a text such as \"{}\"",
                at.start,
                T::EXAMPLE
            )),
            None => D::Error::custom(error),
        })
    }
}

pub(crate) trait Example {
    const EXAMPLE: &str;
}

impl Example for Quota {
    const EXAMPLE: &str = "10 per second, burst 20";
}

impl Example for End {
    const EXAMPLE: &str = "15 minutes";
}

/// A reason or a label.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Note(pub(super) String);

impl TryFrom<String> for Note {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        // The control document refuses others, and repeats them.
        match text.len() <= LONGEST_NOTE && !text.chars().any(char::is_control) {
            true => Ok(Self(text)),
            false => Err("it may have 256 bytes, and no control characters"),
        }
    }
}

/// That of a control document, in bytes.
const LONGEST_NOTE: usize = 256;

/// Reads the body of a call.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut json);
    let read = read.map_err(|error| {
        let field = error.path().to_string();
        (field, error.into_inner())
    });
    let read = read.and_then(|value| match json.end() {
        Ok(()) => Ok(value),
        Err(error) => Err((String::new(), error)),
    });
    read.map_err(|(field, error)| {
        let text = error.to_string();
        // What serde has found is before this, and may be a key.
        let what = match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("expected {expected}"),
            None => text,
        };
        Problem::from(Code::Malformed).detail(match error.classify() {
            Category::Data if FIELDS.contains(&&*field) => format!("`{field}`: {what}"),
            Category::Data => what,
            _ => format!("the body is no JSON: {what}"),
        })
    })
}

/// The names that problems repeat.
const FIELDS: [&str; 9] = [
    "caller", "policy", "limiter", "tier", "for", "quota", "mode", "reason", "label",
];

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
