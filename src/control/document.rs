//! The document: its text, and its limits.

use std::{collections::HashSet, fmt};

use serde::{Deserialize, Serialize};

use super::{
    entry::{Entry, Subject},
    lineage::Lineages,
    wire::WireEntry,
};
use crate::util::random::random;

/// The largest text that is written or read.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// The most entries.
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// The bytes at the start that tell one document from all others: format, version and the
/// mark of the write.
pub(crate) const HEAD_BYTES: usize = 80;
/// What this version reads and writes. A version that adds a field writes a higher one.
const FORMAT: u64 = 1;

/// Everything that operators have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    /// Rises by 1 with each change. 0: no change has been made.
    pub(super) version: u64,
    /// When the last change was made.
    pub(super) changed_ms: u64,
    pub(super) lineages: Lineages,
    /// The entries, the oldest first.
    pub(super) entries: Vec<Entry>,
}

/// Why a text is not taken. The limits that were known before stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    TooLarge,
    TooManyEntries { count: usize },
    NewerFormat { format: u64 },
    NoDocument { reason: String },
}

impl Unreadable {
    fn new(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::NoDocument { reason }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "it is larger than {MAX_BYTES} bytes"),
            Self::TooManyEntries { count } => {
                write!(f, "it has {count} entries; the most are {MAX_ENTRIES}")
            }
            Self::NewerFormat { format } => write!(
                f,
                "it has format {format}, and this version reads format {FORMAT}; update this process"
            ),
            Self::NoDocument { reason } => write!(f, "it is no control document: {reason}"),
        }
    }
}

#[derive(Serialize)]
struct Writing {
    format: u64,
    version: u64,
    write: String,
    changed_ms: u64,
    lineages: Vec<String>,
    entries: Vec<WireEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    format: u64,
    version: u64,
    #[serde(rename = "write")]
    _write: String,
    changed_ms: u64,
    lineages: Vec<String>,
    entries: Vec<WireEntry>,
}

impl Document {
    /// Reads a text. An empty one is a document without entries.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        if text.len() > MAX_BYTES {
            return Err(Unreadable::TooLarge);
        }
        let version = head_version(text)?;
        let read = serde_json::from_slice::<Reading>(text);
        let read = read.map_err(|error| Unreadable::new(error.to_string()))?;
        if (read.format, read.version) != (FORMAT, version) {
            return Err(Unreadable::new("it has two versions"));
        }
        let lineages = Lineages::read(&read.lineages).map_err(Unreadable::new)?;
        let count = read.entries.len();
        if count > MAX_ENTRIES {
            return Err(Unreadable::TooManyEntries { count });
        }
        let mut subjects = HashSet::with_capacity(count);
        let mut entries = Vec::with_capacity(count);
        for (number, wire) in (1..).zip(read.entries) {
            let wrong = |reason| Unreadable::new(format!("entry {number}: {reason}"));
            let entry = wire.read().map_err(wrong)?;
            if !subjects.insert(entry.action.subject()) {
                return Err(wrong("it repeats an earlier one".to_owned()));
            }
            entries.push(entry);
        }
        Ok(Self {
            version,
            changed_ms: read.changed_ms,
            lineages,
            entries,
        })
    }

    /// Returns the text, with a mark of its own: two texts of one version differ in their heads.
    #[expect(clippy::expect_used, reason = "a vector takes all bytes")]
    pub(super) fn text(&self) -> Result<Vec<u8>, Unreadable> {
        let count = self.entries.len();
        if count > MAX_ENTRIES {
            return Err(Unreadable::TooManyEntries { count });
        }
        let writing = Writing {
            format: FORMAT,
            version: self.version,
            write: format!("{:016x}", random()),
            changed_ms: self.changed_ms,
            lineages: self.lineages.texts(),
            entries: self.entries.iter().map(WireEntry::from).collect(),
        };
        let text = serde_json::to_vec(&writing).expect("texts and numbers become JSON");
        // What no process can read would end all changes, so it is never written.
        match Self::parse(&text)? == *self {
            true => Ok(text),
            false => Err(Unreadable::new("it would be read as another one")),
        }
    }

    /// Returns the entry of a subject.
    pub(super) fn find(&self, subject: &Subject) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.action.subject() == *subject)
    }
}

/// Returns the head of a text.
pub(super) fn head(text: &[u8]) -> &[u8] {
    text.get(..HEAD_BYTES).unwrap_or(text)
}

/// Reads the version from a head. This decides whether the text is read at all, so each document
/// must start in the same way.
pub(super) fn head_version(text: &[u8]) -> Result<u64, Unreadable> {
    let strange = || Unreadable::new(r#"it does not start with {"format":1,"version":"#);
    let text = text.strip_prefix(br#"{"format":"#).ok_or_else(strange)?;
    let (format, text) = number(text).ok_or_else(strange)?;
    if format > FORMAT {
        return Err(Unreadable::NewerFormat { format });
    }
    let text = text.strip_prefix(br#","version":"#).ok_or_else(strange)?;
    let (version, text) = number(text).ok_or_else(strange)?;
    let mark = text
        .strip_prefix(br#","write":""#)
        .and_then(|text| text.split_first_chunk::<16>());
    let (mark, text) = mark.ok_or_else(strange)?;
    let is_mark = mark.iter().all(u8::is_ascii_hexdigit) && text.first() == Some(&b'"');
    match is_mark && format == FORMAT && version > 0 {
        true => Ok(version),
        false => Err(strange()),
    }
}

/// Splits a number from the start of a text.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}
