//! What this process knows of a document, and how that changes.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    compile::compile,
    document::{Document, Unreadable},
    error::ControlError,
    status::Status,
};
use crate::{StoreError, metrics::store::StoreMetrics, overlay::Overlay, telemetry};

/// A document that cannot be reached for this long is reported. Outages of the store have log
/// lines of their own.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// A process that may not write tries so rarely to store a lost document again.
const STORE_AFTER: Duration = Duration::from_secs(60);

pub(super) struct State {
    /// What applies here.
    pub(super) document: Arc<Document>,
    pub(super) overlay: Arc<Overlay>,
    /// When the first of the entries that apply ends.
    next_end: Option<SystemTime>,
    /// When the last of the entries that are left out ended.
    last_end: Option<SystemTime>,
    applied_at: Option<SystemTime>,
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
    /// What of this version could not be made an overlay.
    not_compiled: Vec<String>,
    /// What the layers and limiters of this process could not take.
    not_taken: Vec<String>,
    /// When the document was last read, or when this was made.
    read_at: Instant,
    has_been_read: bool,
    /// Whether it is known which policies of this version are unknown.
    is_checked: bool,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            document: Arc::default(),
            overlay: Arc::default(),
            next_end: None,
            last_end: None,
            applied_at: None,
            seen: Vec::new(),
            rejected: None,
            unread: None,
            logged: None,
            not_stored: None,
            not_compiled: Vec::new(),
            not_taken: Vec::new(),
            read_at: Instant::now(),
            has_been_read: false,
            is_checked: true,
        }
    }

    /// Returns whether this head is that of what was read last.
    pub(super) fn is_seen(&self, head: &[u8]) -> bool {
        self.seen == head
    }

    /// Applies a document with this head.
    pub(super) fn accept(&mut self, document: Document, head: Vec<u8>, now: SystemTime) {
        self.document = Arc::new(document);
        self.applied_at = Some(now);
        self.is_checked = false;
        self.rejected = None;
        self.not_stored = None;
        self.seen = head;
        self.record_read();
        // Each version has its own.
        self.not_compiled.clear();
        self.not_taken.clear();
        telemetry::control_applied(self.document.version, self.document.entries.len());
        self.compile(now);
    }

    /// Records what the layers and limiters of this process do not take of this version.
    pub(super) fn set_not_taken(&mut self, mut problems: Vec<String>) {
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert(problem.clone()));
        self.log_new(&self.not_taken, &problems);
        self.not_taken = problems;
    }

    /// Records what a new layer or limiter does not take of this version.
    pub(super) fn add_not_taken(&mut self, problems: Vec<String>) {
        let all = self.not_taken.iter().cloned().chain(problems);
        self.set_not_taken(all.collect());
    }

    fn log_new(&self, known: &[String], problems: &[String]) {
        let known: HashSet<_> = known.iter().collect();
        for problem in problems.iter().filter(|problem| !known.contains(problem)) {
            telemetry::control_not_taken(problem, self.document.version);
        }
    }

    /// Keeps what applies, because what is stored cannot be read.
    pub(super) fn reject(&mut self, why: &Unreadable, head: Vec<u8>) {
        telemetry::control_rejected(why, self.document.version);
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
        if self.document.version > 0 {
            telemetry::control_lost(self.document.version);
            let why = "it is gone; the next look stores it again";
            self.rejected = Some(why.to_owned());
        }
    }

    /// Returns what is to be stored, if nothing is stored any more.
    pub(super) fn lost(&self) -> Option<Arc<Document>> {
        let again = self.not_stored.as_ref().map(|(_, again)| *again);
        let is_time = again.is_none_or(|again| again <= Instant::now());
        let is_lost = self.seen.is_empty() && self.document.version > 0;
        (is_lost && is_time).then(|| Arc::clone(&self.document))
    }

    /// Records that what was lost could not be stored again.
    pub(super) fn cannot_store(&mut self, error: &ControlError) {
        let why = error.cause();
        let is_new = self
            .not_stored
            .as_ref()
            .is_none_or(|(former, _)| *former != why);
        if is_new {
            telemetry::control_not_stored(&why, self.document.version);
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
            telemetry::control_unread(error, self.document.version);
            self.logged = Some(error_text.clone());
        }
        self.unread = Some(error_text);
    }

    fn record_read(&mut self) {
        self.unread = None;
        self.has_been_read = true;
        self.read_at = Instant::now();
        if self.logged.take().is_some() {
            telemetry::control_read_again(self.document.version);
        }
    }

    /// Leaves out what has ended, and takes back what has not, if the clock was ahead. Returns
    /// whether anything changes.
    pub(super) fn expire(&mut self, now: SystemTime) -> bool {
        let has_ended = self.next_end.is_some_and(|end| end <= now);
        let is_back = self.last_end.is_some_and(|end| end > now);
        if has_ended || is_back {
            self.compile(now);
        }
        has_ended || is_back
    }

    fn compile(&mut self, now: SystemTime) {
        let (overlay, problems) = compile(&self.document, now);
        self.log_new(&self.not_compiled, &problems);
        self.not_compiled = problems;
        self.overlay = Arc::new(overlay);
        let ends = self.document.entries.iter().filter_map(|entry| entry.until);
        self.next_end = ends.clone().filter(|end| *end > now).min();
        self.last_end = ends.filter(|end| *end <= now).max();
    }

    fn not_applied(&self) -> impl Iterator<Item = &String> {
        self.not_compiled.iter().chain(&self.not_taken)
    }

    /// Returns the unknown policies of this version, once.
    pub(super) fn check_policies(&mut self, is_known: impl Fn(&str) -> bool) {
        if !self.is_checked {
            self.is_checked = true;
            let unknown = self.unknown_policies(is_known);
            if !unknown.is_empty() {
                telemetry::control_unknown_policies(self.document.version, &unknown);
            }
        }
    }

    fn unknown_policies(&self, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        let entries = self.document.entries.iter();
        let named: BTreeSet<_> = entries.filter_map(|entry| entry.action.policy()).collect();
        let unknown = named.into_iter().filter(|name| !is_known(name));
        unknown.map(str::to_owned).collect()
    }

    pub(super) fn status(&self, now: SystemTime, is_known: impl Fn(&str) -> bool) -> Status {
        let entries = self.document.entries.iter();
        let problem = self
            .unread
            .iter()
            .chain(&self.rejected)
            .chain(self.not_applied());
        Status {
            version: self.document.version,
            applied_at: self.applied_at,
            entries: entries.filter(|entry| entry.is_live(now)).count(),
            age: self.has_been_read.then(|| self.read_at.elapsed()),
            problem: problem.map(String::as_str).next().map(str::to_owned),
            unknown_policies: self.unknown_policies(is_known),
        }
    }

    /// Adds the version, and whether something is wrong that was logged.
    pub(super) fn add_to(&self, metrics: &mut StoreMetrics) {
        let is_wrong =
            self.rejected.is_some() || self.logged.is_some() || self.not_applied().next().is_some();
        metrics.control_version = Some(self.document.version);
        metrics.control_problems = Some(is_wrong.into());
    }

    /// Returns why what is stored does not apply.
    pub(super) fn rejected(&self) -> Option<&str> {
        self.rejected.as_deref()
    }
}
