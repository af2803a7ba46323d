//! The bodies of requests.
//!
//! A problem names the field and what it has to be. It repeats nothing that was sent: that may be a
//! key.

use std::{collections::BTreeMap, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny},
};
use serde_json::error::Category;
use tower_throttle::{
    ConfigError, Quota,
    control::{Caller, End, Mode},
};

use crate::problem::{Code, Problem};

/// The body of a call. Which fields it takes depends on the call: see [`Fields`].
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Body {
    pub(crate) caller: Option<CallerField>,
    pub(crate) policy: Option<String>,
    pub(crate) limiter: Option<String>,
    /// The quota of the caller, where each request chooses it.
    pub(crate) tier: Option<Parsed<Quota>>,
    pub(crate) quota: Option<Parsed<Quota>>,
    pub(crate) r#for: Option<Parsed<End>>,
    pub(crate) mode: Option<ModeField>,
    pub(crate) reason: Option<String>,
    pub(crate) label: Option<String>,
}

impl Body {
    /// `None`: it is about all callers of a policy.
    pub(super) fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref().map(|caller| &caller.0)
    }
}

/// The fields that the body of a call must have, and those that it may have.
pub(super) type Fields = (&'static [&'static str], &'static [&'static str]);

/// The fields of a body that names a caller, and perhaps where to look for it.
pub(super) const OF_CALLER: Fields = (&["caller"], &["policy", "limiter", "tier"]);

/// The names that problems repeat.
const NAMES: [&str; 9] = [
    "caller", "policy", "limiter", "tier", "for", "quota", "mode", "reason", "label",
];

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct ModeField(#[serde(with = "ModeText")] pub(crate) Mode);

#[derive(Deserialize)]
#[serde(remote = "Mode", rename_all = "lowercase")]
enum ModeText {
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
            Parts::One(text) => Self::parse(&[&text]),
            Parts::Several(texts) => Self::parse(&texts),
        }
    }
}

impl CallerField {
    pub(crate) fn parse(parts: &[impl AsRef<str>]) -> Result<Self, String> {
        // An empty text is mostly a value that a script did not find.
        if parts.iter().all(|part| part.as_ref().is_empty()) {
            return Err("it is empty; write \"text:\" if you mean the empty key".to_owned());
        }
        Caller::parse(parts).map(Self).map_err(|error| {
            let what = error.to_string();
            what.strip_prefix("caller: ").unwrap_or(&what).to_owned()
        })
    }
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

/// Reads the body of a call, which has these fields.
pub(super) fn read(body: &[u8], (must, may): Fields) -> Result<Body, Problem> {
    let malformed = |what: String| Problem::from(Code::Malformed).detail(what);
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
    let read = read.map_err(|(field, error)| {
        let text = error.to_string();
        // What serde has found is before this, and may be a key.
        let what = match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("expected {expected}"),
            None => text,
        };
        malformed(match error.classify() {
            Category::Data if NAMES.contains(&&*field) => format!("`{field}`: {what}"),
            Category::Data => what,
            _ => format!("the body is no JSON: {what}"),
        })
    })?;
    let given: BTreeMap<String, Option<IgnoredAny>> =
        serde_json::from_slice(body).unwrap_or_default();
    let has = |name: &&&str| given.get(**name).is_some_and(Option::is_some);
    if let Some(name) = must.iter().find(|name| !has(name)) {
        return Err(malformed(format!("missing field `{name}`")));
    }
    let is_other = |name: &&&str| has(name) && !must.contains(name) && !may.contains(name);
    match NAMES.iter().find(is_other) {
        Some(name) => Err(malformed(format!("`{name}`: this call has no such field"))),
        None => Ok(read),
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
