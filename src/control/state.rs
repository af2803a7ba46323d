//! What this process knows of a document: the version that applies, and what it found in the store.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{
    applied::Applied,
    document::{Document, KEPT},
    error::ControlError,
};
use crate::{Clock, StoreError, metrics::store::StoreMetrics, telemetry};

/// A document that cannot be reached for this long is reported. Outages of the store have log
/// lines of their own.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// How long a process that may not write waits until it tries again to store changes: at first it
/// may have reached a primary that is about to be replaced.
const STORE_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

pub(super) struct State {
    pub(super) applied: Applied,
    /// The head of what is stored, whether it applies or not.
    pub(super) seen: Vec<u8>,
    /// How many of the known changes are not stored.
    pub(super) lacking: usize,
    /// Why what is stored does not apply.
    pub(super) rejected: Option<String>,
    /// Why it could not be read the last time.
    unread: Option<String>,
    /// What was logged about that.
    logged: Option<String>,
    /// Why changes could not be stored again, for how long that is left, and until when.
    not_stored: Option<(String, Duration, Instant)>,
    /// When the document was last read, by the clock of Redis.
    looked_at: Option<SystemTime>,
    /// When what is stored could be read last, by the same clock.
    understood_at: Option<SystemTime>,
    /// The same by that of this process, or when this was made.
    read_at: Instant,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            applied: Applied::default(),
            seen: Vec::new(),
            lacking: 0,
            rejected: None,
            unread: None,
            logged: None,
            not_stored: None,
            looked_at: None,
            understood_at: None,
            read_at: Instant::now(),
        }
    }

    fn version(&self) -> u64 {
        self.applied.document.version
    }

    /// Returns whether the last look is so long ago that others may have forgotten removals.
    pub(super) fn was_cut_off(&self, now: SystemTime) -> bool {
        let end = self.understood_at.and_then(|at| at.checked_add(KEPT));
        end.is_some_and(|end| end <= now)
    }

    /// Records that what is stored can be read.
    pub(super) fn see(&mut self, head: &[u8], lacking: usize, now: SystemTime) {
        self.seen = head.to_vec();
        self.lacking = lacking;
        self.rejected = None;
        if lacking == 0 {
            self.not_stored = None;
        }
        self.record_read(now);
    }

    /// Applies a document.
    pub(super) fn accept(&mut self, document: Document, now: SystemTime, clock: &Arc<dyn Clock>) {
        telemetry::control_applied(document.version, document.live(now).count());
        self.applied = Applied::new(document, now);
        self.applied.compile(now, clock);
    }

    /// Keeps what applies, because what is stored cannot be read.
    pub(super) fn reject(&mut self, why: &str, head: &[u8], now: SystemTime) {
        if self.rejected.is_none() || self.seen != head {
            telemetry::control_rejected(why, self.version());
        }
        self.rejected = Some(why.to_owned());
        self.seen = head.to_vec();
        self.record_read(now);
    }

    /// Returns whether changes are to be stored again.
    pub(super) fn is_to_store(&self) -> bool {
        let again = self.not_stored.as_ref().map(|(.., again)| *again);
        let is_time = again.is_none_or(|again| again <= Instant::now());
        self.lacking > 0 && self.rejected.is_none() && is_time
    }

    /// Records that changes could not be stored again.
    pub(super) fn cannot_store(&mut self, error: &ControlError) {
        let why = error.cause();
        let former = self.not_stored.as_ref();
        if former.is_none_or(|(former, ..)| *former != why) {
            telemetry::control_not_stored(&why, self.lacking);
        }
        let is_refused = error.store_error().is_none_or(StoreError::is_refused);
        let wait = match former {
            _ if !is_refused => Duration::ZERO,
            None => STORE_AFTER.0,
            Some((_, wait, _)) => (*wait * 2).clamp(STORE_AFTER.0, STORE_AFTER.1),
        };
        self.not_stored = Some((why, wait, Instant::now() + wait));
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

    pub(super) fn record_read(&mut self, now: SystemTime) {
        self.unread = None;
        self.looked_at = Some(now);
        if self.rejected.is_none() {
            self.understood_at = Some(now);
        }
        self.read_at = Instant::now();
        if self.logged.take().is_some() {
            telemetry::control_read_again(self.version());
        }
    }

    pub(super) fn status(&self, now: SystemTime, is_known: impl Fn(&str) -> bool) -> Status {
        let not_stored = self.not_stored.as_ref().map(|(why, ..)| {
            let lacking = self.lacking;
            format!("it lacks {lacking} known changes, which were not stored again: {why}")
        });
        let problem = self
            .unread
            .iter()
            .chain(&self.rejected)
            .chain(&not_stored)
            .chain(self.applied.not_applied());
        Status {
            version: self.version(),
            applied_at: self.applied.since,
            entries: self.applied.document.live(now).count(),
            age: self.looked_at.map(|_| self.read_at.elapsed()),
            problem: problem.map(String::as_str).next().map(str::to_owned),
            unknown_policies: self.applied.unknown_policies(is_known),
        }
    }

    /// Adds the version, and whether something is wrong that was logged.
    pub(super) fn add_to(&self, metrics: &mut StoreMetrics) {
        let is_wrong = self.rejected.is_some()
            || self.not_stored.is_some()
            || self.logged.is_some()
            || self.applied.not_applied().next().is_some();
        metrics.control_version = Some(self.version());
        metrics.control_problems = Some(is_wrong.into());
    }
}

/// How a [`Control`](super::Control) stands in this process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The version of the document that applies: when it was written, in milliseconds since the
    /// epoch by the clock of Redis. It is higher after each change, and may be lower after a failover. 0: no change has been made, or
    /// none was read yet.
    pub version: u64,
    /// When this version was applied here.
    pub applied_at: Option<SystemTime>,
    /// How many of its entries have not ended.
    pub entries: usize,
    /// The time since the document was last found to be readable and up to date. `None`: never.
    pub age: Option<Duration>,
    /// Why what is stored differs from what applies here: it cannot be read, lacks changes that
    /// could not be stored again, or Redis does not answer. `None`: it does not differ.
    pub problem: Option<String>,
    /// The policies of its entries that no layer or limiter of this process has. They may be
    /// those of other processes.
    pub unknown_policies: Vec<String>,
}
