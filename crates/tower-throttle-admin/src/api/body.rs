//! What the body of a request says.
//!
//! Problems name a field and what is wrong with it. They repeat nothing that was sent: it may be a
//! key.

use std::{collections::BTreeMap, fmt, ops::Range, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::Value;
use tower_throttle::{
    ConfigError, Quota,
    control::{Caller, End, Mode},
};

use crate::problem::{Code, Problem};

/// The largest key, in bytes.
const LONGEST_KEY: usize = 4 * 1024;
/// The most parts of a caller.
const MOST_PARTS: usize = 16;
/// The longest name of a policy or limiter, in bytes.
const LONGEST_NAME: usize = 64;
/// The longest quota or duration, in bytes.
const LONGEST_QUOTA: usize = 256;
/// The longest reason or label, in bytes: that of a control document.
const LONGEST_TEXT: usize = 256;
/// The last time of a control document, in the year 2255.
const LAST_MS: u64 = (1 << 53) / 1_000;

/// The fields of a JSON object. Each is taken once.
#[derive(Debug)]
pub(super) struct Fields(BTreeMap<String, Value>);

impl Fields {
    pub(super) fn read(body: &[u8]) -> Result<Self, Problem> {
        serde_json::from_slice(body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            mistake(match error.classify() {
                serde_json::error::Category::Data => {
                    "the body has to be a JSON object in which no field is twice".to_owned()
                }
                _ => format!("the body is no JSON: line {line}, column {column}"),
            })
        })
    }

    /// Returns a problem if there are fields that were not taken. `known`: those of the call.
    pub(super) fn end(self, known: &[&str]) -> Result<(), Problem> {
        let Some(unknown) = self.0.into_keys().next() else {
            return Ok(());
        };
        let is_word = |word: &str| {
            let mut letters = word.bytes();
            word.len() <= 32 && letters.all(|letter| letter.is_ascii_lowercase() || letter == b'_')
        };
        // A name that looks like one is no key.
        let name = match is_word(&unknown) {
            true => format!("the field {unknown:?}"),
            false => "a field".to_owned(),
        };
        let known = known.join(", ");
        Err(mistake(format!(
            "the body has {name}, which this call does not know; it knows {known}"
        )))
    }

    /// Takes a field. One that is `null` is not there.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str, longest: usize) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() > longest => Err(mistake(format!(
                "`{name}` has more than {longest} bytes; shorten it"
            ))),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(mistake(format!("`{name}` has to be a text"))),
        }
    }

    pub(super) fn limiter(&mut self) -> Result<Option<String>, Problem> {
        self.text("limiter", LONGEST_NAME)
    }

    pub(super) fn policy(&mut self) -> Result<Option<String>, Problem> {
        self.text("policy", LONGEST_NAME)
    }

    pub(super) fn required_policy(&mut self) -> Result<String, Problem> {
        self.policy()?.ok_or_else(|| missing("policy"))
    }

    /// Takes the caller: a text or several.
    pub(super) fn caller(&mut self) -> Result<Caller, Problem> {
        let not_texts = || mistake("`caller` has to be a text, or a list of texts".to_owned());
        let parts = match self.take("caller").ok_or_else(|| missing("caller"))? {
            Value::String(text) => vec![text],
            Value::Array(parts) => {
                let text = |part| match part {
                    Value::String(text) => Ok(text),
                    _ => Err(not_texts()),
                };
                parts.into_iter().map(text).collect::<Result<_, _>>()?
            }
            _ => return Err(not_texts()),
        };
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        caller(&parts)
    }

    pub(super) fn quota(&mut self) -> Result<Quota, Problem> {
        self.quota_in("quota")?.ok_or_else(|| missing("quota"))
    }

    /// Takes the tier that a caller is looked up in.
    pub(super) fn tier(&mut self) -> Result<Option<Quota>, Problem> {
        self.quota_in("tier")
    }

    fn quota_in(&mut self, field: &'static str) -> Result<Option<Quota>, Problem> {
        let Some(text) = self.text(field, LONGEST_QUOTA)? else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|error: ConfigError| {
            let what = match error.span() {
                // Its message repeats the text.
                Some(at) => not_read(&at, "10 per second, burst 20"),
                None => error.to_string(),
            };
            mistake(format!("`{field}`: {what}"))
        })
    }

    /// Takes the mode of a policy.
    pub(super) fn mode(&mut self) -> Result<Mode, Problem> {
        let word = self.text("mode", LONGEST_NAME)?;
        match word.ok_or_else(|| missing("mode"))?.as_str() {
            "enforce" => Ok(Mode::Enforce),
            "shadow" => Ok(Mode::Shadow),
            "off" => Ok(Mode::Off),
            _ => Err(mistake(
                "`mode` has to be \"enforce\", \"shadow\" or \"off\"".to_owned(),
            )),
        }
    }

    /// Takes when a change ends: `for` a time from now, or `until_ms`.
    pub(super) fn until(&mut self) -> Result<Option<End>, Problem> {
        let after = self.text("for", LONGEST_QUOTA)?;
        match (after, self.take("until_ms")) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(mistake(
                "`for` and `until_ms` exclude each other; drop one".to_owned(),
            )),
            (Some(text), None) => end_of(&text).map(Some),
            (None, Some(value)) => {
                let ms = value.as_u64().filter(|ms| (1..=LAST_MS).contains(ms));
                let ms = ms.ok_or_else(|| {
                    mistake(format!(
                        "`until_ms` has to be a whole number of milliseconds since 1970, up to {LAST_MS}"
                    ))
                })?;
                let at = std::time::UNIX_EPOCH + Duration::from_millis(ms);
                Ok(Some(at.into()))
            }
        }
    }

    pub(super) fn required_until(&mut self) -> Result<End, Problem> {
        let until = self.until()?;
        until.ok_or_else(|| mistake("`for` or `until_ms` is missing: when it ends".to_owned()))
    }

    /// Takes a reason or a label.
    pub(super) fn note(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let text = self.text(name, LONGEST_TEXT)?;
        match text
            .as_ref()
            .is_some_and(|text| text.chars().any(char::is_control))
        {
            true => Err(mistake(format!("`{name}` has control characters"))),
            false => Ok(text),
        }
    }
}

/// Reads the parts of a caller.
pub(crate) fn caller(parts: &[&str]) -> Result<Caller, Problem> {
    if parts.iter().map(|part| part.len()).sum::<usize>() > LONGEST_KEY {
        return Err(Problem::new(Code::KeyTooLong));
    }
    if parts.len() > MOST_PARTS {
        return Err(mistake(format!(
            "`caller` has more than {MOST_PARTS} parts"
        )));
    }
    // An empty text is mostly a value that a script did not find.
    if parts.iter().all(|part| part.is_empty()) {
        return Err(mistake(
            "`caller` is empty; write \"text:\" if you mean the empty key".to_owned(),
        ));
    }
    Caller::parse(parts).map_err(|error| {
        let what = error.to_string();
        let what = what.strip_prefix("caller: ").unwrap_or(&what);
        mistake(format!("`caller`: {what}"))
    })
}

fn end_of(text: &str) -> Result<End, Problem> {
    text.parse().map_err(|error: ConfigError| {
        mistake(match error.span() {
            // Its message repeats the text.
            Some(at) => format!("`for`: {}", not_read(&at, "15 minutes")),
            None => "`for` is no time; write a longer one".to_owned(),
        })
    })
}

/// Says where a text stops making sense.
fn not_read(at: &Range<usize>, such_as: &str) -> String {
    let start = at.start;
    format!("the text is not understood from byte {start} on; write one such as \"{such_as}\"")
}

/// Returns the problem of a body that has a mistake.
fn mistake(what: String) -> Problem {
    Problem::new(Code::Malformed).detail(what)
}

fn missing(name: &str) -> Problem {
    mistake(format!("`{name}` is missing"))
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if fields.insert(name, value).is_some() {
                return Err(Error::custom("a field is twice"));
            }
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
