//! What a file names: its policies, layers and limiters, and the readers that it needs.

use std::collections::BTreeMap;

use super::{Config, DEFAULT_LAYER};

/// The names in a file: [`Config::names`]. Policies are in its order, and the others in that of the
/// alphabet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Names {
    /// Its policies.
    pub policies: Vec<String>,
    /// Its layers. A file without layers and limiters has one, `default`.
    pub layers: Vec<String>,
    /// Its limiters.
    pub limiters: Vec<String>,
}

/// A reader that a file names, and that only code has: [`Config::reader_names`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ReaderName {
    /// The method of [`Readers`](super::Readers) that registers it, such as `key`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
}

impl ReaderName {
    /// All kinds: the methods of [`Readers`](super::Readers).
    #[rustfmt::skip]
    pub const KINDS: [&'static str; 12] = [
        "key", "quota", "when", "cost", "settle", "on_denied", "observe", "name_offenders",
        "headers_when", "client_address", "store", "clock",
    ];

    /// Creates a name. `None` if the kind does not exist.
    pub fn new(kind: &str, name: impl Into<String>) -> Option<Self> {
        let kind = Self::KINDS.into_iter().find(|known| *known == kind)?;
        let name = name.into();
        Some(Self { kind, name })
    }
}

impl Config {
    /// Returns the names of the policies, layers and limiters.
    #[must_use]
    pub fn names(&self) -> Names {
        let file = &self.document.tables;
        let policies = file.policy.iter().map(|policy| policy.name.0.clone());
        let layers = file.layer.iter().flat_map(BTreeMap::keys).cloned();
        let limiters = file.limiter.iter().flat_map(BTreeMap::keys).cloned();
        let (mut layers, limiters): (Vec<_>, Vec<_>) = (layers.collect(), limiters.collect());
        if layers.is_empty() && limiters.is_empty() {
            layers.push(DEFAULT_LAYER.to_owned());
        }
        Names {
            policies: policies.collect(),
            layers,
            limiters,
        }
    }
}
