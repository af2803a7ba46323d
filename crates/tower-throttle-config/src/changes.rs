//! [`Changes`]: what another version of a file changes.

mod compare;
#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests;

use std::fmt;

use super::Config;

/// The changes in another version of a file, for people: which buckets are kept, and which are not.
///
/// ```
/// use tower_throttle_config::Config;
///
/// let file = |quota, name| {
///     let text = format!("version = 1\n[[policy]]\nname = {name:?}\nquota = {quota:?}");
///     Config::from_toml(&text)
/// };
/// let old = file("10 per second", "burst")?;
/// let changes = Config::diff(&old, &file("20 per second", "burst")?);
/// assert_eq!(
///     changes.to_string(),
///     r#"policy "burst": kept; quota: "10 per second" -> "20 per second""#,
/// );
/// let changes = Config::diff(&old, &file("10 per second", "peak")?);
/// assert_eq!(changes.to_string(), "policy \"burst\": gone\npolicy \"peak\": new");
/// # Ok::<(), tower_throttle_config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Vec<Change>);

/// The change of one policy, layer, limiter or other table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// What it is, such as `policy "burst"`.
    pub path: String,
    /// The effect of the change.
    pub effect: Effect,
    /// The fields that change.
    pub fields: Vec<FieldChange>,
}

/// The effect of a change on a part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// It is kept. Buckets of a policy keep what callers have used, under the new numbers.
    Kept,
    /// All callers of the policy start with full buckets, because its algorithm or its key is
    /// another one. Or only callers with IPv6 addresses do, because these are grouped by another
    /// prefix.
    StartsAfresh,
    /// It was not there before. A layer or limiter has no effect until code asks for it.
    New,
    /// It was removed. Buckets of a policy expire. A layer or limiter that is in use keeps its last
    /// limits.
    Gone,
    /// It cannot change at run time: the whole file is rejected.
    NeedsRestart,
}

/// A field that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldChange {
    /// The name of the field. That of a policy may be in another table: `peer.ipv6_prefix`.
    pub name: String,
    /// The former value, as TOML. `None` if the field was not there.
    pub before: Option<String>,
    /// The new value, as TOML. `None` if the field was removed.
    pub after: Option<String>,
}

impl Config {
    /// Returns what a new version of a file changes for a process that has the old one.
    #[must_use]
    pub fn diff(old: &Self, new: &Self) -> Changes {
        Changes(compare::files(old, new))
    }
}

impl Changes {
    /// Returns every policy, layer, limiter and other table of both versions, including unchanged
    /// ones.
    #[must_use]
    pub fn all(&self) -> &[Change] {
        &self.0
    }

    /// Returns those that do not stay as they are.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.0.iter().filter(|change| !change.is_unchanged())
    }

    /// Returns whether all stays as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns whether a table or a field was removed, as in a file that is half written.
    pub(super) fn take_away(&self) -> bool {
        let is_gone = |change: &Change| {
            let mut fields = change.fields.iter();
            change.effect == Effect::Gone || fields.any(|field| field.after.is_none())
        };
        self.iter().any(is_gone)
    }

    /// Returns the policies that were removed.
    pub(super) fn lost_policies(&self) -> impl Iterator<Item = &Change> {
        let is_policy = |change: &&Change| change.path.starts_with("policy ");
        let changes = self.iter().filter(is_policy);
        changes.filter(|change| change.effect == Effect::Gone)
    }

    /// Returns the changes as one line without values, for logs.
    pub(super) fn summary(&self) -> String {
        let parts = self
            .iter()
            .map(|change| format!("{}: {}", change.path, change.effect));
        let parts: Vec<_> = parts.collect();
        match parts.is_empty() {
            true => "nothing changed".to_owned(),
            false => parts.join("; "),
        }
    }
}

impl Change {
    /// Returns whether it stays as it is.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.effect == Effect::Kept && self.fields.is_empty()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, change) in self.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.effect)?;
        for field in &self.fields {
            write!(f, "; {field}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::StartsAfresh => "starts afresh",
            Self::New => "new",
            Self::Gone => "gone",
            Self::NeedsRestart => "needs a restart",
        })
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let (before, after) = (text(&self.before), text(&self.after));
        write!(f, "{}: {before} -> {after}", self.name)
    }
}
