//! Why a change was not made, or may not have been made.

use std::{error::Error, fmt};

use crate::StoreError;

/// A change of a [`Control`](super::Control) that was not made, or whose outcome is unknown.
///
/// It displays what is wrong. No requests are affected: all processes keep what they know.
#[derive(Clone, Debug)]
pub struct ControlError(ErrorKind);

#[derive(Clone, Debug)]
pub(super) enum ErrorKind {
    Invalid(String),
    Unwritable(String),
    /// The document cannot be read, does not apply, or was changed by others each time.
    Other(String),
    /// The store failed before anything was to be written.
    NotRead(StoreError),
    Store(StoreError),
}

impl ControlError {
    /// Returns whether the change may have been made, or may yet be made: it was sent, no
    /// answer came, and the document does not have it. Look again with
    /// [`refresh`](super::Control::refresh), or make the change again: making it twice does no
    /// harm.
    pub fn may_have_happened(&self) -> bool {
        matches!(&self.0, ErrorKind::Store(error) if error.may_have_run())
    }

    /// Returns the error of the store, if the document could not be reached.
    pub fn store_error(&self) -> Option<&StoreError> {
        match &self.0 {
            ErrorKind::Store(error) | ErrorKind::NotRead(error) => Some(error),
            _ => None,
        }
    }

    /// Returns what is wrong, without what it means for a change.
    pub(super) fn cause(&self) -> String {
        match &self.0 {
            ErrorKind::Store(error) | ErrorKind::NotRead(error) => error.to_string(),
            ErrorKind::Unwritable(why) => why.clone(),
            _ => self.to_string(),
        }
    }

    /// Returns whether the change can never be made, whatever is in the document: an end that has
    /// passed, for example. Answer it with 400, and other errors with 409 or 503.
    pub const fn is_mistake(&self) -> bool {
        matches!(&self.0, ErrorKind::Invalid(_))
    }

    pub(super) fn invalid(what: impl fmt::Display) -> Self {
        Self(ErrorKind::Invalid(what.to_string()))
    }
}

impl From<ErrorKind> for ControlError {
    fn from(kind: ErrorKind) -> Self {
        Self(kind)
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ErrorKind::Invalid(what) | ErrorKind::Other(what) => f.write_str(what),
            ErrorKind::Unwritable(why) => write!(
                f,
                "the control document cannot take this change: {why}; remove entries"
            ),
            ErrorKind::NotRead(error) => write!(f, "the control document cannot be read: {error}"),
            ErrorKind::Store(error) if error.may_have_run() => write!(
                f,
                "the control document may have been changed, because no answer came: {error}"
            ),
            ErrorKind::Store(error) => write!(f, "the control document was not changed: {error}"),
        }
    }
}

impl Error for ControlError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            ErrorKind::Store(error) | ErrorKind::NotRead(error) => Some(error),
            _ => None,
        }
    }
}
