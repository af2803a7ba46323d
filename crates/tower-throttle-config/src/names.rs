//! What a file names: its policies, layers and limiters, and the readers that it needs.

use super::{Config, DEFAULT_LAYER, field::Field, form::Form};

/// The names in a file, in its order: [`Config::names`].
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
    pub const KINDS: [&'static str; 12] = [
        "key",
        "quota",
        "when",
        "cost",
        "settle",
        "on_denied",
        "observe",
        "name_offenders",
        "headers_when",
        "client_address",
        "store",
        "clock",
    ];

    /// Creates a name. `None` if there is no such kind.
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
        let file = self.root();
        let named = |table: &str| {
            let table = file.get(table);
            let names = table.iter().flat_map(Field::entries).map(|(name, _)| name);
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let policies = file.get("policy").map(|field| field.items());
        let policies = policies.unwrap_or_default();
        let policies = policies
            .iter()
            .filter_map(|policy| policy.get("name")?.text());
        let (mut layers, limiters) = (named("layer"), named("limiter"));
        if layers.is_empty() && limiters.is_empty() {
            layers.push(DEFAULT_LAYER.to_owned());
        }
        Names {
            policies: policies.map(str::to_owned).collect(),
            layers,
            limiters,
        }
    }

    /// Returns the readers that the file names, in the order of their kinds and names: what an
    /// application must register with [`readers`](Self::readers).
    ///
    /// ```
    /// use tower_throttle_config::Config;
    ///
    /// let config = Config::from_toml(r#"
    ///     version = 1
    ///     [[policy]]
    ///     name = "burst"
    ///     quota = "10 per second"
    ///     key = "reader:tenant"
    /// "#)?;
    /// let needed = config.reader_names();
    /// assert_eq!((needed[0].kind, &*needed[0].name), ("key", "tenant"));
    /// # Ok::<(), tower_throttle_config::ConfigErrors>(())
    /// ```
    #[must_use]
    pub fn reader_names(&self) -> Vec<ReaderName> {
        let mut found = Vec::new();
        collect(&self.root(), "", &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Collects the readers in a value. `name`: that of its field.
fn collect(field: &Field<'_>, name: &str, found: &mut Vec<ReaderName>) {
    match field.form {
        Form::Reader(kind) => {
            let name = field.text().unwrap_or_default();
            found.extend(ReaderName::new(kind, name));
        }
        Form::Words(_) => {
            // Such a word is that of a key, or of an address reader.
            let kind = if name == "client_address" {
                name
            } else {
                "key"
            };
            if let Some(("reader:", reader)) = field.word() {
                found.extend(ReaderName::new(kind, reader));
            }
        }
        Form::Table(table) => {
            for known in table.fields {
                if let Some(inner) = field.get(known.name) {
                    collect(&inner, known.name, found);
                }
            }
        }
        Form::Map { .. } => {
            for (_, inner) in field.entries() {
                collect(&inner, name, found);
            }
        }
        Form::List(_) | Form::Tables(_) => {
            for inner in field.items() {
                collect(&inner, name, found);
            }
        }
        _ => {}
    }
}
