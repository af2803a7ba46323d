//! A value of a checked file, with its form and its path: what the mapping to builders reads.

use std::{borrow::Cow, env, fmt, time::Duration};

use super::{
    descriptor::FILE,
    form::{Form, Table},
    problem::{Code, ConfigProblem},
    tree::{Entry, Node, Place, Value},
    variables,
};
use tower_throttle::{ConfigError, parse_duration};

/// A value of the file.
///
/// All that it returns is of the right form, as the file was checked: `text` of a field that the
/// descriptor says to be a text is `None` for no value but one of another form, where the
/// descriptor has an [`Either`](Form::Either).
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) node: &'a Node,
    pub(super) form: &'static Form,
    pub(super) path: String,
}

/// The form of the file itself.
static ROOT: Form = Form::Table(&FILE);

impl<'a> Field<'a> {
    pub(super) const fn root(node: &'a Node) -> Self {
        Self {
            node,
            form: &ROOT,
            path: String::new(),
        }
    }

    /// Returns a field of this table, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let known = self.table().and_then(|table| table.field(name));
        debug_assert!(known.is_some(), "{} has no field {name}", self.path);
        Some(self.inner(self.node.get(name)?, known?.form))
    }

    /// Returns what an entry of a map of tables would be that is there and says nothing: the layer of
    /// a file that has none.
    pub(super) fn empty_entry(&self, map: &str, name: &str) -> Option<Self> {
        static NOTHING: Node = Node {
            value: Value::Table(Vec::new()),
            place: None,
        };
        let Form::Map { of, form } = self.table()?.field(map)?.form else {
            return None;
        };
        Some(Self {
            node: &NOTHING,
            form,
            path: format!("{of} {name:?}"),
        })
    }

    /// Returns whether a field that is `true` or `false` is there and `true`.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|field| field.flag() == Some(true))
    }

    /// Returns what has a name of its own: the layers of `layer`, the tiers of `tiers`. It is empty
    /// for a value of another form.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> {
        let form = match self.form {
            Form::Map { form, .. } => Some(*form),
            _ => None,
        };
        let entries = self.node.entries().iter();
        entries.filter_map(move |entry| Some((&*entry.name, self.inner(entry, form?))))
    }

    /// Returns the values of a list, and of any other value the value itself: so a field that takes
    /// one value or several is read in one way.
    pub(super) fn items(&self) -> Vec<Self> {
        let Value::List(nodes) = &self.node.value else {
            return vec![self.clone()];
        };
        let item = |(index, node)| match self.form {
            Form::Tables(form) => Self {
                node,
                form,
                path: match node.get("name").and_then(|entry| entry.node.text()) {
                    Some(name) => format!("{} {name:?}", self.path),
                    None => format!("{} {}", self.path, index + 1),
                },
            },
            Form::List(form) => Self {
                node,
                form: form.of(&node.value).unwrap_or(form),
                path: format!("{}[{index}]", self.path),
            },
            form => Self {
                node,
                form,
                path: self.path.clone(),
            },
        };
        nodes.iter().enumerate().map(item).collect()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.node.text()
    }

    /// Returns a text with the values of the variables of the environment that it names.
    ///
    /// # Errors
    ///
    /// Returns a problem that names a variable that is not set.
    pub(super) fn expanded(&self) -> Result<Cow<'a, str>, ConfigProblem> {
        let text = self.text().unwrap_or_default();
        let expanded = variables::expand(text, |name| env::var(name).ok());
        expanded.map_err(|(code, message)| self.problem(code, message))
    }

    /// Returns the word of [`Form::Words`] that the text is, and what follows it: `("header:",
    /// "x-api-key")`, or `("peer", "")`.
    pub(super) fn word(&self) -> Option<(&'static str, &'a str)> {
        let (Form::Words(words), Some(text)) = (self.form, self.text()) else {
            return None;
        };
        words
            .iter()
            .find_map(|word| Some((word.text, word.find(text)?)))
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        parse_duration(self.text()?).ok()
    }

    pub(super) fn whole(&self) -> Option<u64> {
        match self.node.value {
            Value::Whole(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    pub(super) const fn flag(&self) -> Option<bool> {
        match self.node.value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    /// Returns the table that this is, if it is one with known fields.
    pub(super) const fn table(&self) -> Option<&'static Table> {
        match self.form {
            Form::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Makes a problem at this value.
    pub(super) fn problem(&self, code: Code, message: String) -> ConfigProblem {
        ConfigProblem::new(self.node.place, self.path.clone(), code, message)
    }

    /// Makes a problem at this value from what a builder says.
    pub(super) fn error(&self, error: &ConfigError) -> ConfigProblem {
        let problem = ConfigProblem::of_error(self.node.place, self.path.clone(), error);
        let is_expanded = self.text().is_some_and(|text| text.contains("${"));
        match self.form {
            Form::WithVariables if is_expanded => problem.without_quoted_values(),
            _ => problem,
        }
    }

    /// Makes a problem at a name in this table.
    pub(super) fn problem_at(
        &self,
        place: Option<Place>,
        code: Code,
        text: String,
    ) -> ConfigProblem {
        ConfigProblem::new(place, self.path.clone(), code, text)
    }

    /// Returns the value of an entry of this table.
    pub(super) fn inner(&self, entry: &'a Entry, form: &'static Form) -> Self {
        let name = &entry.name;
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let path = match self.form {
            Form::Map { of, .. } if self.path == *of => format!("{of} {name:?}"),
            _ if self.path.is_empty() => name.clone(),
            _ if name.chars().all(is_bare) => format!("{}.{name}", self.path),
            _ => format!("{}.{name:?}", self.path),
        };
        Self {
            node: &entry.node,
            form: form.of(&entry.node.value).unwrap_or(form),
            path,
        }
    }
}

impl fmt::Debug for Field<'_> {
    /// Shows names of fields, and no values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path, self.node)
    }
}
