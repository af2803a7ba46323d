//! The names of policies, layers and limiters.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use siphasher::sip128::SipHasher13;

use crate::{
    ConfigError,
    util::interned::{InternTable, Interned},
};

/// The longest name.
pub(crate) const LONGEST: usize = 64;

/// A policy's name: printable ASCII.
pub(crate) type Name = Interned<NameParts>;

#[derive(PartialEq, Eq, Hash)]
pub(crate) struct NameParts {
    pub(crate) text: Box<str>,
    /// As structured fields (RFC 9651) write a string.
    pub(crate) quoted: Box<str>,
    /// To be mixed with a secret.
    pub(crate) hash: (u64, u64),
    /// The body of a denial by this policy alone: most denials have no other.
    problem: Box<str>,
}

impl Name {
    pub(crate) fn new(name: &str) -> Option<Self> {
        static NAMES: InternTable<NameParts> = InternTable::new();

        if !is_name(name) {
            return None;
        }
        let hash = SipHasher13::new().hash(name.as_bytes());
        let quoted = quoted(name);
        Some(NAMES.intern(NameParts {
            text: name.into(),
            hash: (hash.h1, hash.h2),
            problem: format!(
                r#"{{"type":"{QUOTA_EXCEEDED}","title":"Quota Exceeded","status":429,"violated-policies":[{quoted}]}}"#
            )
            .into(),
            quoted: quoted.into(),
        }))
    }

    /// Returns the problem document of a denial by this policy alone. It is not copied, unless
    /// the process has hundreds of names.
    pub(crate) fn problem(&self) -> Bytes {
        match self {
            Self::Static(parts) => Bytes::from_static(parts.problem.as_bytes()),
            Self::Shared(parts) => Bytes::copy_from_slice(parts.problem.as_bytes()),
        }
    }
}

/// Checks the name of a layer or limiter.
pub(crate) fn limiter_name(name: Option<&str>) -> Result<Arc<str>, ConfigError> {
    let name = name.unwrap_or("default");
    match is_name(name) {
        true => Ok(name.into()),
        false => Err(ConfigError::new(
            "limiter-name",
            format!(
                "limiter name {name:?} is not 1 to 64 printable ASCII characters; choose another name"
            ),
        )),
    }
}

/// Returns the error for a policy that cannot have this name.
pub(crate) fn invalid_policy_name(name: &str) -> ConfigError {
    let message = format!(
        "policy name {name:?} is not 1 to 64 printable ASCII characters; choose another name"
    );
    ConfigError::new("policy-name", message)
}

/// Returns whether a policy, a layer or a limiter can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_printable = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    is_printable && !name.is_empty() && name.len() <= LONGEST
}

/// The type of the problem document (RFC 9457) of a denial because a quota is exceeded.
pub(crate) const QUOTA_EXCEEDED: &str =
    "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The type of that of a ban.
pub(crate) const ABNORMAL_USAGE: &str =
    "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

impl fmt::Debug for NameParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Printable ASCII in quotes, with quotes and backslashes escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(char);
    }
    quoted.push('"');
    quoted
}
