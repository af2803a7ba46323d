//! How a process reads the document, changes it, and stores again what it lacks.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, time::sleep};

use super::{
    document::{Document, head},
    edit::Edit,
    error::{ControlError, ErrorKind},
    held::Held,
};
use crate::{
    telemetry,
    util::{lock::lock, random::random_between},
};

/// More writers at a time than a fleet has operators.
const MAX_ATTEMPTS: u32 = 64;

impl Held {
    /// Looks at what is stored, and stores again what it lacks.
    pub(super) async fn read(&self) -> Result<(), ControlError> {
        let mut read = self.source.head().await;
        if read.as_ref().is_ok_and(|head| self.state().seen != *head) {
            read = self.source.text().await;
            if let Ok(text) = &read {
                // The status has the mistake.
                let _ = self.take(text);
            }
        } else if read.is_ok() {
            self.find_same();
        }
        if let Err(error) = read {
            self.state().fail(&error);
            return Err(ErrorKind::NotRead(error).into());
        }
        if self.state().is_to_store() {
            let next = self.document().next(self.now());
            // If another process was faster, the next look finds what it wrote.
            if let Err(error) = self.write(next).await {
                self.state().cannot_store(&error);
            }
        }
        Ok(())
    }

    fn find_same(&self) {
        let is_known = self.known_policies();
        let has_subscribers = !lock(&self.subscribers).is_empty();
        let now = self.now();
        let mut state = self.state();
        state.record_read(now);
        if has_subscribers {
            state.applied.check_policies(is_known);
        }
    }

    /// Merges what is stored into what this process knows.
    fn take(&self, text: &[u8]) -> Result<(), String> {
        let (head, now, known) = (head(text), self.now(), self.document());
        let mut state = self.state();
        if state.seen == head && state.rejected.is_none() {
            state.record_read(now);
            return Ok(());
        }
        drop(state);
        let stored = match Document::parse_at(text, now) {
            Ok(stored) => stored,
            Err(why) => {
                self.state().reject(&why, head, now);
                return Err(why);
            }
        };
        let mut merged = known.merge(&stored);
        merged.tidy(now);
        let mut lacking = stored.lacks(&merged);
        // What it lacks may have been removed so long ago that its removal is forgotten.
        if lacking > 0 && stored.version > 0 && self.state().was_cut_off(now) {
            telemetry::control_dropped(lacking);
            (merged, lacking) = (stored.clone(), 0);
        }
        if lacking == 0 {
            merged.version = stored.version;
        }
        self.state().see(head, lacking, now);
        if merged != *known {
            self.accept(merged);
        }
        Ok(())
    }

    fn accept(&self, document: Document) {
        let now = self.now();
        let mut state = self.state();
        state.accept(document, now, &self.clock);
        // Stored before the status shows that it applies.
        self.overrides.store(Arc::clone(&state.applied.overrides));
        drop(state);
        self.publish();
    }

    /// Writes a document in place of what is stored. Returns `false` if another process was faster.
    async fn write(&self, next: Document) -> Result<bool, ControlError> {
        let text = next.text().map_err(ErrorKind::Unwritable)?;
        let seen = self.state().seen.clone();
        let lacking = self.state().lacking;
        let is_written = match self.source.replace(seen, text.clone()).await {
            Ok(true) => {
                self.state().see(head(&text), 0, self.now());
                self.accept(next);
                true
            }
            Ok(false) => false,
            Err(error) if error.may_have_run() && self.finds(&next).await => true,
            Err(error) => return Err(ErrorKind::Store(error).into()),
        };
        if is_written && lacking > 0 {
            telemetry::control_restored(lacking, self.document().version);
        }
        Ok(is_written)
    }

    /// Returns whether what is stored has a document whose answer was lost, and all that is known.
    async fn finds(&self, next: &Document) -> bool {
        let Ok(text) = self.source.text().await else {
            return false;
        };
        let is_read = self.take(&text).is_ok();
        let known = self.document();
        let mut new = next
            .changes
            .iter()
            .filter(|(_, last)| last.ms() == next.version);
        let is_known = new.all(|(subject, last)| known.changes.get(subject) == Some(last));
        is_read && is_known && self.state().lacking == 0
    }

    /// Changes what is stored. Returns `false` if that needs no change.
    pub(super) async fn change(&self, edit: &Edit) -> Result<bool, ControlError> {
        for attempt in 0..MAX_ATTEMPTS {
            // Another process was faster. Outside a runtime nothing can wait.
            if attempt > 0 && Handle::try_current().is_ok() {
                let most = 0.002 * f64::from(attempt.min(25));
                sleep(Duration::from_secs_f64(random_between(0.0, most))).await;
            }
            let _turn = self.turn.lock().await;
            let text = self.source.text().await.map_err(ErrorKind::NotRead)?;
            self.take(&text).map_err(|why| {
                ErrorKind::Other(format!(
                    "the control document was not changed, because it cannot be read: {why}"
                ))
            })?;
            let (known, now) = (self.document(), self.now());
            let edited = edit.apply(&known, now)?;
            let (next, is_changed) = match edited {
                Some(edited) => edited,
                None if self.state().lacking == 0 => return Ok(false),
                None => (known.next(now), matches!(edit, Edit::Restore)),
            };
            if self.write(next).await? {
                return Ok(is_changed);
            }
        }
        let why =
            "the control document was not changed, because others changed it each time; try again";
        Err(ErrorKind::Other(why.to_owned()).into())
    }
}
