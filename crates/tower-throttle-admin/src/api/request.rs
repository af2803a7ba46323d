//! The bodies of requests.
//!
//! A problem names the field and what it has to be. It repeats nothing that was sent: that may be a
//! key.

use std::{collections::BTreeMap, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny},
};
use tower_throttle::{
    ConfigError, Quota,
    control::{Caller, End, Mode},
};

use crate::problem::{Code, Problem};

/// The body of a call. Which fields it takes depends on the call: see [`Fields`].
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Body {
    /// `None`: it is about all callers of a policy.
    #[serde(default, deserialize_with = "caller")]
    pub(crate) caller: Option<Caller>,
    pub(crate) policy: Option<String>,
    pub(crate) limiter: Option<String>,
    /// The quota of the caller, where each request chooses it.
    #[serde(default, deserialize_with = "quota")]
    pub(crate) tier: Option<Quota>,
    #[serde(default, deserialize_with = "quota")]
    pub(crate) quota: Option<Quota>,
    #[serde(default, deserialize_with = "end")]
    pub(crate) r#for: Option<End>,
    #[serde(default, deserialize_with = "mode")]
    pub(crate) mode: Option<Mode>,
    pub(crate) reason: Option<String>,
    pub(crate) label: Option<String>,
}

/// The fields that the body of a call must have, and those that it may have.
pub(super) type Fields = (&'static [&'static str], &'static [&'static str]);

/// The fields of a body that names a caller, and perhaps where to look for it.
pub(super) const OF_CALLER: Fields = (&["caller"], &["policy", "limiter", "tier"]);

/// The names that problems repeat.
const NAMES: [&str; 9] = [
    "caller", "policy", "limiter", "tier", "for", "quota", "mode", "reason", "label",
];

/// A text, or several for a key of several parts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "it has to be a text, or a list of texts")]
enum Parts {
    One(String),
    Several(Vec<String>),
}

fn caller<'de, D: Deserializer<'de>>(json: D) -> Result<Option<Caller>, D::Error> {
    let caller = match Option::deserialize(json)? {
        Some(Parts::One(text)) => parse_caller(&[&text]),
        Some(Parts::Several(texts)) => parse_caller(&texts),
        None => return Ok(None),
    };
    caller.map(Some).map_err(D::Error::custom)
}

pub(crate) fn parse_caller(parts: &[impl AsRef<str>]) -> Result<Caller, String> {
    Caller::parse(parts).map_err(|error| {
        let what = error.to_string();
        what.strip_prefix("caller: ").unwrap_or(&what).to_owned()
    })
}

fn quota<'de, D: Deserializer<'de>>(json: D) -> Result<Option<Quota>, D::Error> {
    parsed(json, "10 per second, burst 20")
}

fn mode<'de, D: Deserializer<'de>>(json: D) -> Result<Option<Mode>, D::Error> {
    let text: Option<String> = Option::deserialize(json)?;
    let mode = |text: String| {
        let mut modes = [Mode::Enforce, Mode::Shadow, Mode::Off].into_iter();
        let mode = modes.find(|mode| mode.name() == text);
        mode.ok_or_else(|| D::Error::unknown_variant("", &["enforce", "shadow", "off"]))
    };
    text.map(mode).transpose()
}

fn end<'de, D: Deserializer<'de>>(json: D) -> Result<Option<End>, D::Error> {
    parsed(json, "15 minutes")
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err = ConfigError>>(
    json: D,
    example: &str,
) -> Result<Option<T>, D::Error> {
    let text: Option<String> = Option::deserialize(json)?;
    let parsed = text.as_deref().map(T::from_str).transpose();
    parsed.map_err(|error| match error.span().map(|at| at.start) {
        // Its message repeats the text.
        Some(at) => D::Error::custom(format!(
            "it is not understood from byte {at} on; write a text such as \"{example}\""
        )),
        None => D::Error::custom(error),
    })
}

/// Reads the body of a call, which has these fields.
pub(super) fn read(body: &[u8], (must, may): Fields) -> Result<Body, Problem> {
    let malformed = |what: String| Code::Malformed.because(what);
    let given: BTreeMap<String, Option<IgnoredAny>> = serde_json::from_slice(body)
        .map_err(|error| malformed(format!("the body is no JSON object: {}", expected(&error))))?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (field, what) = (error.path().to_string(), expected(error.inner()));
        malformed(match NAMES.contains(&&*field) {
            true => format!("`{field}`: {what}"),
            false => what,
        })
    })?;
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

/// Returns what an error expects. What it has found is before this, and may be a key.
fn expected(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => text,
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
