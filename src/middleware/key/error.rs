//! Why a request has no key.

use std::fmt;

use crate::util::interned::{InternTable, Interned};

/// Explains why a request has no key.
///
/// It names the header, cookie or type that the key is read from, but never a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    lack: Lack,
    /// What the key is read from. `None` for a closure, or if the process has too many names. For
    /// a misconfigured application, what to change.
    name: Option<&'static str>,
    has_alternatives: bool,
}

/// What a request lacks, or has several of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    Unknown,
    Header,
    /// Several values that differ.
    Headers,
    Cookie,
    Cookies,
    BearerToken,
    /// Several that differ, or one that is not a valid token.
    BearerTokens,
    Extension,
    /// Several readings, of a closure.
    Several,
    /// The application is misconfigured.
    Misconfigured,
}

impl Lack {
    const fn is_ambiguous(self) -> bool {
        matches!(
            self,
            Self::Headers | Self::Cookies | Self::BearerTokens | Self::Several
        )
    }
}

impl KeyError {
    /// Creates the error of a request that lacks the key.
    /// [`on_missing_key`](crate::Policy::on_missing_key) decides what happens to it.
    #[must_use]
    pub const fn missing() -> Self {
        Self::missing_from(Lack::Unknown, None)
    }

    /// Creates the error of a request whose key could be read in several ways: a field that occurs
    /// twice with different values, for example. The response is 403, whatever
    /// [`on_missing_key`](crate::Policy::on_missing_key) is, and no alternative is read: otherwise
    /// clients could choose their bucket by what they send in addition to their key.
    #[must_use]
    pub const fn ambiguous() -> Self {
        Self::missing_from(Lack::Several, None)
    }

    pub(super) const fn missing_from(lack: Lack, name: Option<&'static str>) -> Self {
        Self {
            lack,
            name,
            has_alternatives: false,
        }
    }

    /// Creates the error of a misconfigured application, in which every request would fail.
    ///
    /// `advice` names what to change. The error displays it, and it is logged once and never sent
    /// to a client.
    #[must_use]
    pub const fn misconfigured(advice: &'static str) -> Self {
        Self::missing_from(Lack::Misconfigured, Some(advice))
    }

    /// Returns whether the request lacks the key.
    pub const fn is_missing(&self) -> bool {
        !self.is_ambiguous() && self.advice().is_none()
    }

    /// Returns whether the request has a key that could be read in several ways. If it is neither
    /// that nor [missing](Self::is_missing), the application is misconfigured.
    pub const fn is_ambiguous(&self) -> bool {
        self.lack.is_ambiguous()
    }

    /// Returns what to change, if the application is misconfigured.
    pub(crate) const fn advice(&self) -> Option<&'static str> {
        match self.lack {
            Lack::Misconfigured => self.name,
            _ => None,
        }
    }

    /// Returns the type of the extension, if it is the only thing that could be the key.
    pub(crate) fn extension(&self) -> Option<&'static str> {
        let is_only = self.lack == Lack::Extension && !self.has_alternatives;
        self.name.filter(|_| is_only)
    }

    /// Combines this error with that of the alternative, `other`.
    pub(super) fn with_alternative(self, other: Self) -> Self {
        match self.lack {
            Lack::Unknown | Lack::Misconfigured => other,
            _ => Self {
                has_alternatives: true,
                ..self
            },
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(advice) = self.advice() {
            return f.write_str(advice);
        }
        f.write_str(match self.lack.is_ambiguous() {
            true => "ambiguous client key",
            false => "missing client key",
        })?;
        let lacks = match self.lack {
            Lack::Unknown | Lack::Several | Lack::Misconfigured => return Ok(()),
            Lack::Header => "no header",
            Lack::Headers => "different values in header",
            Lack::Cookie => "no cookie",
            Lack::Cookies => "different values in cookie",
            Lack::BearerToken => "no bearer token in header",
            Lack::BearerTokens => "several or unreadable bearer tokens in header",
            Lack::Extension => "no request extension",
        };
        write!(f, " ({lacks}")?;
        if let Some(name) = self.name {
            write!(f, " `{name}`")?;
        }
        if self.has_alternatives {
            f.write_str(", and none of its alternatives")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for KeyError {}

/// Returns the name with a static lifetime, so that an error can hold it for free. `None`
/// for all but the first 256 names.
pub(super) fn keep_name(name: &str) -> Option<&'static str> {
    static NAMES: InternTable<Box<str>> = InternTable::new();

    match NAMES.intern(name.into()) {
        Interned::Static(name) => Some(name),
        Interned::Shared(_) => None,
    }
}
