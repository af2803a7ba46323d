//! Errors in the configuration, found when something is built.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, convert::Infallible, error::Error, fmt, ops::Range};

/// An error in the configuration, found before the first request.
///
/// The message states what is wrong and what to change. [`code`](Self::code) returns a word for
/// programs, which is also in the
/// [table of errors](https://docs.rs/tower-throttle/0.1/tower_throttle/guides/errors/). `Debug`
/// shows the message and the code, because a `main` that returns the error prints it so.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket};
///
/// let error = Quota::try_from(TokenBucket::per_second(2_000_000)).unwrap_err();
/// assert_eq!(error.code(), "rate-too-high");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    code: &'static str,
    message: Cow<'static, str>,
    policy: Option<Box<str>>,
    subject: Option<Cow<'static, str>>,
    span: Option<Range<usize>>,
}

impl ConfigError {
    /// Creates an error whose message is `what is wrong; what to change`. Each code is written in
    /// one place of the sources, and has a row in `docs/errors.md`: a test checks both.
    pub(crate) fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            policy: None,
            subject: None,
            span: None,
        }
    }

    /// Creates the error for a number or a duration of zero, an empty list or an empty secret.
    pub(crate) fn zero(setting: &'static str) -> Self {
        let message =
            format!("`{setting}` is zero or empty; set a value, or leave it out for the default");
        Self::new("zero", message).with_subject(setting)
    }

    pub(crate) fn header_name(name: &str) -> Self {
        Self::new(
            "header-name",
            format!("{name:?} is not a header name; use a token such as \"x-api-key\""),
        )
    }

    /// Adds the setting, the method or the entry of a list that is wrong. The config file finds its
    /// field by it.
    pub(crate) fn with_subject(mut self, subject: impl Into<Cow<'static, str>>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    pub(crate) fn with_span(mut self, span: Range<usize>) -> Self {
        self.span = Some(span);
        self
    }

    pub(crate) fn in_policy(mut self, name: &str) -> Self {
        self.policy = Some(name.into());
        self
    }

    /// Puts the line of a list before the message.
    pub(crate) fn in_line(mut self, line: &str) -> Self {
        self.message = format!("{line}: {}", self.message).into();
        self
    }

    /// Returns the code of this error: one word of a fixed set that stays the same from release to
    /// release, to look up in `docs/errors.md`.
    pub const fn code(&self) -> &'static str {
        self.code
    }

    /// Returns the name of the policy that has the error, if it is in one.
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// Returns the bytes of the wrong word, if a text cannot be read as a [`Quota`](crate::Quota),
    /// an [`OnStoreFailure`](crate::OnStoreFailure) or an `End`. The range is empty where a word is missing.
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// Returns the message without the name of the policy, to show it where that is known.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what the message is about, if it is one of several things that were given: an entry of
    /// a list, or the method of a setting.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = &self.policy {
            write!(f, "policy {policy:?}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.code)
    }
}

impl Error for ConfigError {}

/// A [`Quota`](crate::Quota) is taken where a type that has to be checked is: it cannot fail.
impl From<Infallible> for ConfigError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
