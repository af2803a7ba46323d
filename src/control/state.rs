//! What this process knows of a document: the version that applies, and what it found in the store.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    applied::Applied,
    document::{Document, Unreadable},
    error::ControlError,
    status::Status,
};
use crate::{StoreError, metrics::store::StoreMetrics, telemetry};

/// A document that cannot be reached for this long is reported. Outages of the store have log
/// lines of their own.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// A process that may not write tries so rarely to store a lost document again.
const STORE_AFTER: Duration = Duration::from_secs(60);

pub(super) struct State {
    pub(super) applied: Applied,
    /// The head of what is stored, whether it applies or not.
    seen: Vec<u8>,
    /// Why what is stored does not apply.
    rejected: Option<String>,
    /// Why it could not be read the last time.
    unread: Option<String>,
    /// What was logged about that.
    logged: Option<String>,
    /// Why a document that was lost could not be stored again, and when that is tried again.
    not_stored: Option<(String, Instant)>,
    /// When the document was last read, or when this was made.
    read_at: Instant,
    has_been_read: bool,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            applied: Applied::default(),
            seen: Vec::new(),
            rejected: None,
            unread: None,
            logged: None,
            not_stored: None,
            read_at: Instant::now(),
            has_been_read: false,
        }
    }

    fn version(&self) -> u64 {
        self.applied.document.version
    }

    /// Returns whether this head is that of what was read last.
    pub(super) fn is_seen(&self, head: &[u8]) -> bool {
        self.seen == head
    }

    /// Applies a document with this head.
    pub(super) fn accept(&mut self, document: Document, head: Vec<u8>, now: SystemTime) {
        self.applied = Applied::new(document, now);
        self.rejected = None;
        self.not_stored = None;
        self.seen = head;
        self.record_read();
        let document = &self.applied.document;
        telemetry::control_applied(document.version, document.entries.len());
        self.applied.compile(now);
    }

    /// Keeps what applies, because what is stored cannot be read.
    pub(super) fn reject(&mut self, why: &Unreadable, head: Vec<u8>) {
        telemetry::control_rejected(why, self.version());
        self.rejected = Some(why.to_string());
        self.seen = head;
        self.record_read();
    }

    /// Records that nothing is stored. What applies stays: a store that lost its data must not
    /// lift a ban.
    pub(super) fn find_nothing(&mut self) {
        self.record_read();
        if self.seen.is_empty() {
            return;
        }
        self.seen = Vec::new();
        self.rejected = None;
        if self.version() > 0 {
            telemetry::control_lost(self.version());
            let why = "it is gone; the next look stores it again";
            self.rejected = Some(why.to_owned());
        }
    }

    /// Returns what is to be stored, if nothing is stored any more.
    pub(super) fn lost(&self) -> Option<Arc<Document>> {
        let again = self.not_stored.as_ref().map(|(_, again)| *again);
        let is_time = again.is_none_or(|again| again <= Instant::now());
        let is_lost = self.seen.is_empty() && self.version() > 0;
        (is_lost && is_time).then(|| Arc::clone(&self.applied.document))
    }

    /// Records that what was lost could not be stored again.
    pub(super) fn cannot_store(&mut self, error: &ControlError) {
        let why = error.cause();
        let is_new = self
            .not_stored
            .as_ref()
            .is_none_or(|(former, _)| *former != why);
        if is_new {
            telemetry::control_not_stored(&why, self.version());
        }
        let is_refused = error.store_error().is_none_or(StoreError::is_refused);
        let wait = if is_refused {
            STORE_AFTER
        } else {
            Duration::ZERO
        };
        self.rejected = Some(format!("it lacks changes, and was not stored again: {why}"));
        self.not_stored = Some((why, Instant::now() + wait));
    }

    /// Records that nothing has changed.
    pub(super) fn find_same(&mut self) {
        self.record_read();
    }

    /// Records that the document could not be reached.
    pub(super) fn fail(&mut self, error: &StoreError) {
        let error_text = error.to_string();
        let is_to_log = error.is_refused() || self.read_at.elapsed() >= REPORT_AFTER;
        if is_to_log && self.logged.as_ref() != Some(&error_text) {
            telemetry::control_unread(error, self.version());
            self.logged = Some(error_text.clone());
        }
        self.unread = Some(error_text);
    }

    fn record_read(&mut self) {
        self.unread = None;
        self.has_been_read = true;
        self.read_at = Instant::now();
        if self.logged.take().is_some() {
            telemetry::control_read_again(self.version());
        }
    }

    pub(super) fn status(&self, now: SystemTime, is_known: impl Fn(&str) -> bool) -> Status {
        let entries = self.applied.document.entries.iter();
        let problem = self
            .unread
            .iter()
            .chain(&self.rejected)
            .chain(self.applied.not_applied());
        Status {
            version: self.version(),
            applied_at: self.applied.since,
            entries: entries.filter(|entry| entry.is_live(now)).count(),
            age: self.has_been_read.then(|| self.read_at.elapsed()),
            problem: problem.map(String::as_str).next().map(str::to_owned),
            unknown_policies: self.applied.unknown_policies(is_known),
        }
    }

    /// Adds the version, and whether something is wrong that was logged.
    pub(super) fn add_to(&self, metrics: &mut StoreMetrics) {
        let is_wrong = self.rejected.is_some()
            || self.logged.is_some()
            || self.applied.not_applied().next().is_some();
        metrics.control_version = Some(self.version());
        metrics.control_problems = Some(is_wrong.into());
    }

    /// Returns why what is stored does not apply.
    pub(super) fn rejected(&self) -> Option<&str> {
        self.rejected.as_deref()
    }
}
