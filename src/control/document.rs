//! The document: the last change of each subject, its text, and its limits.

use std::{
    collections::HashMap,
    fmt,
    time::{Duration, SystemTime},
};

use serde::Deserialize;

use super::{
    entry::{Entry, Last, Subject, milliseconds},
    wire::{self, WireChange},
};
use crate::util::random::random;

/// The largest text that is written or read.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// The most changes.
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// The bytes at the start that tell one text from all others: format, version and the mark of
/// the write.
pub(crate) const HEAD_BYTES: usize = 80;
/// What this version reads and writes. A version that adds a field writes a higher one.
const FORMAT: u64 = 1;
/// How long removed and ended entries are kept. A process that was cut off for longer takes what
/// is stored.
pub(super) const KEPT: Duration = Duration::from_secs(86_400);
/// No clock of a server is wrong by more. A change of a later version could not be replaced.
const MOST_AHEAD_MS: u64 = 100 * 365 * 86_400_000;

/// Everything that operators have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    /// When it was written, in milliseconds by the clock of Redis, and higher with each write.
    /// 0: never.
    pub(super) version: u64,
    pub(super) changes: HashMap<Subject, Last>,
}

/// Returns why a text is not a document.
fn not_one(reason: impl fmt::Display) -> String {
    format!("it is no control document: {reason}")
}

#[derive(Deserialize)]
struct Format {
    format: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    #[serde(rename = "format")]
    _format: u64,
    version: u64,
    write: String,
    changes: Vec<WireChange>,
}

impl Document {
    /// Reads a text. An empty one is a document without changes.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        if text.len() > MAX_BYTES {
            return Err(format!("it is larger than {MAX_BYTES} bytes"));
        }
        let Format { format } = serde_json::from_slice(text).map_err(not_one)?;
        if format > FORMAT {
            return Err(format!(
                "it has format {format}, and this version reads format {FORMAT}; update this process"
            ));
        }
        let read: Reading = serde_json::from_slice(text).map_err(not_one)?;
        let head = start(read.version, &read.write);
        if !text.starts_with(head.as_bytes()) || read.write.len() != 16 {
            return Err(not_one(format!("it does not start with {head}")));
        }
        let count = read.changes.len();
        if count > MAX_ENTRIES {
            return Err(format!(
                "it has {count} entries; the most are {MAX_ENTRIES}"
            ));
        }
        let mut changes = HashMap::with_capacity(count);
        for (number, wire) in (1..).zip(read.changes) {
            let wrong = |reason: String| not_one(format!("change {number}: {reason}"));
            let (subject, last) = wire.read().map_err(wrong)?;
            if last.ms() > read.version {
                return Err(wrong("it is later than the document".to_owned()));
            }
            if changes.insert(subject, last).is_some() {
                return Err(wrong("it repeats an earlier one".to_owned()));
            }
        }
        let version = read.version;
        Ok(Self { version, changes })
    }

    /// Reads a text, and refuses it if its version leaves no later ones.
    pub(super) fn parse_at(text: &[u8], now: SystemTime) -> Result<Self, String> {
        let document = Self::parse(text)?;
        match document.version > milliseconds(now).saturating_add(MOST_AHEAD_MS) {
            true => Err(not_one("its version is a century after now")),
            false => Ok(document),
        }
    }

    /// Returns the text, with a mark of its own: two texts of one version differ in their heads.
    pub(super) fn text(&self) -> Result<Vec<u8>, String> {
        let changes = self.changes.iter();
        let changes = changes.map(|(subject, last)| (last.ms(), wire::text(subject, last)));
        let mut changes: Vec<_> = changes.collect();
        changes.sort();
        let changes: Vec<_> = changes.into_iter().map(|(_, text)| text).collect();
        let start = start(self.version, &format!("{:016x}", random()));
        let text = format!(r#"{start}"changes":[{}]}}"#, changes.join(",")).into_bytes();
        // What no process can read would end all changes, so it is never written.
        match Self::parse(&text)? == *self {
            true => Ok(text),
            false => Err(not_one("it would be read as another one")),
        }
    }

    /// Returns all entries, with those that have ended.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.changes.values().filter_map(Last::entry)
    }

    /// Returns the entries that have not ended.
    pub(super) fn live(&self, now: SystemTime) -> impl Iterator<Item = &Entry> + Clone {
        self.entries().filter(move |entry| entry.is_live(now))
    }

    /// Returns the later change of each subject, in whatever order documents are merged.
    pub(super) fn merge(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        merged.version = self.version.max(other.version);
        for (subject, last) in &other.changes {
            let known = self.changes.get(subject);
            // At the same millisecond, on two primaries, any order is right that all share.
            let order = |last: &Last| (last.ms(), wire::text(subject, last));
            if known.is_none_or(|known| known != last && order(known) < order(last)) {
                merged.changes.insert(subject.clone(), last.clone());
            }
        }
        merged
    }

    /// Returns how many changes of another document this one lacks.
    pub(super) fn lacks(&self, other: &Self) -> usize {
        let changes = other.changes.iter();
        let lacking = changes.filter(|(subject, last)| self.changes.get(subject) != Some(last));
        lacking.count()
    }

    /// Drops entries that were removed or have ended a day ago, and the oldest removed or ended
    /// ones if there is no room for all.
    pub(super) fn tidy(&mut self, now: SystemTime) {
        let is_over = |last: &Last, ago: Duration| {
            let end = last.over_at().and_then(|at| at.checked_add(ago));
            end.is_some_and(|end| end <= now)
        };
        self.changes.retain(|_, last| !is_over(last, KEPT));
        let changes = self.changes.iter();
        let sizes = changes.map(|(subject, last)| 1 + wire::text(subject, last).len());
        let mut bytes = HEAD_BYTES + sizes.sum::<usize>();
        if bytes <= MAX_BYTES && self.changes.len() <= MAX_ENTRIES {
            return;
        }
        // A server whose clock was ahead may have dated a removal far from now.
        let gives_way = |last: &Last| last.entry().is_none() || is_over(last, Duration::ZERO);
        let over = self.changes.iter().filter(|(_, last)| gives_way(last));
        // All processes drop the same ones, or each would restore what another has dropped.
        let mut over: Vec<_> = over
            .map(|(subject, last)| (last.ms(), wire::text(subject, last), subject.clone()))
            .collect();
        over.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        for (_, text, subject) in over {
            if bytes <= MAX_BYTES && self.changes.len() <= MAX_ENTRIES {
                break;
            }
            self.changes.remove(&subject);
            bytes -= 1 + text.len();
        }
    }

    /// Returns the document that is written next, without another change.
    pub(super) fn next(&self, now: SystemTime) -> Self {
        // The clock of another server may be behind.
        let version = milliseconds(now).max(self.version.saturating_add(1));
        let changes = self.changes.clone();
        Self { version, changes }
    }
}

fn start(version: u64, write: &str) -> String {
    format!(r#"{{"format":{FORMAT},"version":{version},"write":"{write}","#)
}

/// Returns the head of a text.
pub(super) fn head(text: &[u8]) -> &[u8] {
    text.get(..HEAD_BYTES).unwrap_or(text)
}
