//! How a process reads the document, changes it, and stores it again after a loss.

use std::time::Duration;

use tokio::{runtime::Handle, time::sleep};

use super::{
    document::{Document, Unreadable, head, head_version},
    edit::Edit,
    error::{ControlError, ErrorKind},
    held::Held,
    reconcile::{Reconciled, reconcile},
};
use crate::{
    telemetry,
    util::{lock::lock, random::random_between},
};

/// More writers at a time than a fleet has operators.
const MAX_ATTEMPTS: u32 = 64;

impl Held {
    /// Looks at what is stored.
    pub(super) async fn read(&self) -> Result<(), ControlError> {
        let stored = match self.source.head().await {
            Ok(stored) => stored,
            Err(error) => {
                self.state().fail(&error);
                return Err(ErrorKind::NotRead(error).into());
            }
        };
        if self.state().is_seen(&stored) {
            self.find_same();
            // The second look after a loss: looks are at random times, so most processes of a
            // fleet find that another one was faster.
            let lost = self.state().lost();
            return match lost {
                Some(lost) => self.store_again(&lost, &[]).await,
                None => Ok(()),
            };
        }
        if let Err(why) = check_head(&stored) {
            self.state().reject(&why, stored);
            return Ok(());
        }
        match self.source.text().await {
            Ok(text) => match self.take(&text) {
                None => Ok(()),
                Some(restored) => self.store_again(&restored, &text).await,
            },
            Err(error) => {
                self.state().fail(&error);
                Err(ErrorKind::NotRead(error).into())
            }
        }
    }

    fn find_same(&self) {
        let is_known = self.known_policies();
        let has_subscribers = !lock(&self.subscribers).is_empty();
        let mut state = self.state();
        state.find_same();
        if has_subscribers {
            state.applied.check_policies(is_known);
        }
    }

    /// Takes what is stored. Returns what is to be written in its place, if it lacks entries that
    /// this process knows: then nothing has changed yet.
    fn take(&self, text: &[u8]) -> Option<Document> {
        let head = head(text);
        if self.state().is_seen(head) {
            self.state().find_same();
            return None;
        }
        if text.is_empty() {
            self.state().find_nothing();
            return None;
        }
        let stored = match Document::parse(text) {
            Ok(stored) => stored,
            Err(why) => {
                self.state().reject(&why, head.to_vec());
                return None;
            }
        };
        match reconcile(&self.document(), stored, self.now()) {
            Reconciled::Stored(document) => {
                self.accept(document, head);
                None
            }
            Reconciled::Restored(document) => Some(document),
        }
    }

    fn accept(&self, document: Document, head: &[u8]) {
        let now = self.now();
        self.state().accept(document, head.to_vec(), now);
        self.publish();
    }

    /// Writes what this process knows in place of a text that lacks it.
    async fn store_again(&self, restored: &Document, stored: &[u8]) -> Result<(), ControlError> {
        let next = Edit::Restore.apply(restored, true, self.now());
        let text = next.and_then(|next| match next {
            Some(next) => next.text().map_err(ErrorKind::Unwritable),
            None => Ok(Vec::new()),
        });
        let error: ControlError = match text {
            Err(kind) => kind.into(),
            Ok(text) => {
                let replaced = self.source.replace(head(stored).to_vec(), text.clone());
                match replaced.await {
                    Ok(false) => return self.take_of_faster().await,
                    Ok(true) => {
                        self.take_restored(&text);
                        return Ok(());
                    }
                    Err(error) => error.into(),
                }
            }
        };
        let is_final = error.store_error().is_none_or(|error| error.is_refused());
        let document = Document::parse(stored).ok();
        match document.filter(|document| is_final && document.version > 0) {
            // Without the right to write, a process cannot hold on to what operators may have
            // changed since.
            Some(document) => {
                let former = self.document().version;
                telemetry::control_lacks_changes(&error.cause(), former, document.version);
                self.accept(document, head(stored));
                Ok(())
            }
            None => {
                self.state().cannot_store(&error);
                Err(error)
            }
        }
    }

    /// Takes what another process has just written.
    async fn take_of_faster(&self) -> Result<(), ControlError> {
        let text = self.source.text().await?;
        // If it lacks something again, the next look stores that.
        self.take(&text);
        Ok(())
    }

    /// Takes what this process has just written after a loss.
    fn take_restored(&self, text: &[u8]) {
        let former = self.document().version;
        self.take(text);
        let document = self.document();
        telemetry::control_restored(former, document.version, document.entries.len());
    }

    /// Changes what is stored. Returns `false` if it says so already.
    pub(super) async fn change(&self, edit: &Edit) -> Result<bool, ControlError> {
        for attempt in 0..MAX_ATTEMPTS {
            // Another process was faster. Outside of a runtime nothing can wait.
            if attempt > 0 && Handle::try_current().is_ok() {
                let most = 0.002 * f64::from(attempt.min(25));
                sleep(Duration::from_secs_f64(random_between(0.0, most))).await;
            }
            let _turn = self.turn.lock().await;
            if let Some(is_changed) = self.try_change(edit).await? {
                return Ok(is_changed);
            }
        }
        Err(ErrorKind::Contended.into())
    }

    /// Returns `None` if another process changed the document meanwhile.
    async fn try_change(&self, edit: &Edit) -> Result<Option<bool>, ControlError> {
        let stored = self.source.text().await?;
        let document = Document::parse(&stored).map_err(ErrorKind::Unreadable)?;
        let (document, is_lost) = match reconcile(&self.document(), document, self.now()) {
            Reconciled::Stored(document) => (document, false),
            Reconciled::Restored(document) => (document, true),
        };
        let is_changed = match edit {
            Edit::Restore => is_lost,
            _ => !edit.is_done(&document),
        };
        let Some(next) = edit.apply(&document, is_lost, self.now())? else {
            self.take(&stored);
            return Ok(Some(false));
        };
        let text = next.text().map_err(ErrorKind::Unwritable)?;
        let replaced = self.source.replace(head(&stored).to_vec(), text.clone());
        match replaced.await {
            Ok(true) => {
                match is_lost {
                    true => self.take_restored(&text),
                    false => drop(self.take(&text)),
                }
                Ok(Some(is_changed))
            }
            Ok(false) => Ok(None),
            Err(error) => {
                if error.may_have_run() && self.has(edit).await {
                    return Ok(Some(true));
                }
                Err(error.into())
            }
        }
    }

    /// Returns whether what is stored has a change whose answer was lost.
    async fn has(&self, edit: &Edit) -> bool {
        let Ok(text) = self.source.text().await else {
            return false;
        };
        let known = self.document();
        let stored = Document::parse(&text).map(|stored| reconcile(&known, stored, self.now()));
        self.take(&text);
        // What lacks known entries was not made from this change.
        matches!(stored, Ok(Reconciled::Stored(stored)) if edit.is_done(&stored))
    }
}

fn check_head(stored: &[u8]) -> Result<(), Unreadable> {
    match stored.is_empty() {
        true => Ok(()),
        false => head_version(stored).map(drop),
    }
}
