//! How the values of a file look: the types of the [descriptor](super::descriptor).

#![allow(dead_code, reason = "what is for people is read by schemas and tests")]

use super::{tree::Value, word::Word};

/// How a value looks.
///
/// A form may contain itself, so it has no `Debug`.
pub(super) enum Form {
    /// A text of one character or more.
    Text,
    /// A text in which `${NAME}` stands for a variable of the environment.
    WithVariables,
    /// A text such as `50ms`.
    Duration,
    /// A text such as `10 per second, burst 20`.
    Quota,
    /// The name of a reader that the application registers with this method of `Readers`.
    Reader(&'static str),
    /// The name of a policy of the file.
    PolicyName,
    /// A text that is, or starts with, one of these words.
    Words(&'static [Word]),
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// `true` or `false`.
    Flag,
    /// Only `true`: without it, the field is left out.
    True,
    /// A list with at least one value.
    List(&'static Self),
    /// A list of tables, each with a name of its own in the field `name`. The form is a
    /// [`Form::Table`].
    Tables(&'static Self),
    /// A table with these fields.
    Table(&'static Table),
    /// A table whose names are free, with at least one of them.
    Map {
        /// What a name names, as `layer`.
        of: &'static str,
        form: &'static Self,
    },
    /// One of these. Each takes another type of values.
    Either(&'static [Self]),
}

/// A table with known fields.
pub(super) struct Table {
    /// What it is, for paths: `policy`.
    pub(super) name: &'static str,
    /// What it says, in a sentence.
    pub(super) about: &'static str,
    pub(super) fields: &'static [Known],
    /// Whether it may be there without any field.
    pub(super) may_be_empty: bool,
}

/// A known field.
pub(super) struct Known {
    pub(super) name: &'static str,
    /// What it says, in a sentence.
    pub(super) about: &'static str,
    pub(super) form: &'static Form,
    pub(super) need: Need,
    /// What holds without it. Empty for a field that has to be there.
    pub(super) default: &'static str,
    /// What says the same in code, as `Policy::cost`.
    pub(super) code: &'static [&'static str],
}

/// Whether a field has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Optional,
    Required,
    /// It is one of several such fields of its table, of which exactly one has to be there.
    One,
    /// It is optional, and there only beside one of these.
    Beside(&'static [&'static str]),
}

impl Known {
    pub(super) const fn new(name: &'static str, form: &'static Form, about: &'static str) -> Self {
        Self {
            name,
            about,
            form,
            need: Need::Optional,
            default: "",
            code: &[],
        }
    }

    pub(super) const fn required(mut self) -> Self {
        self.need = Need::Required;
        self
    }

    pub(super) const fn one(mut self) -> Self {
        self.need = Need::One;
        self
    }

    pub(super) const fn beside(mut self, others: &'static [&'static str]) -> Self {
        self.need = Need::Beside(others);
        self
    }

    pub(super) const fn default(mut self, text: &'static str) -> Self {
        self.default = text;
        self
    }

    pub(super) const fn code(mut self, paths: &'static [&'static str]) -> Self {
        self.code = paths;
        self
    }

    /// Returns whether a table without this field, or one like it, is reported.
    pub(super) fn is_needed(&self) -> bool {
        matches!(self.need, Need::Required | Need::One)
    }
}

/// Joins alternatives: `a, b or c`.
pub(super) fn in_words(alternatives: impl IntoIterator<Item = String>) -> String {
    let mut alternatives: Vec<String> = alternatives.into_iter().collect();
    let last = alternatives.pop().unwrap_or_default();
    match alternatives.is_empty() {
        true => last,
        false => format!("{} or {last}", alternatives.join(", ")),
    }
}

impl Table {
    pub(super) const fn new(
        name: &'static str,
        about: &'static str,
        fields: &'static [Known],
    ) -> Self {
        Self {
            name,
            about,
            fields,
            may_be_empty: false,
        }
    }

    /// Lets the table be there without any field.
    pub(super) const fn may_be_empty(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    pub(super) fn field(&self, name: &str) -> Option<&'static Known> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Form {
    /// Returns the form for a value of this type, if there is one.
    pub(super) fn of(&'static self, value: &Value) -> Option<&'static Self> {
        let takes = match self {
            Self::Either(forms) => return forms.iter().find_map(|form| form.of(value)),
            Self::Text
            | Self::WithVariables
            | Self::Duration
            | Self::Quota
            | Self::Reader(_)
            | Self::PolicyName
            | Self::Words(_) => matches!(value, Value::Text(_)),
            Self::Whole(..) => matches!(value, Value::Whole(_)),
            Self::Flag => matches!(value, Value::Flag(_)),
            Self::True => matches!(value, Value::Flag(true)),
            Self::List(_) | Self::Tables(_) => matches!(value, Value::List(_)),
            Self::Table(_) | Self::Map { .. } => matches!(value, Value::Table(_)),
        };
        takes.then_some(self)
    }

    /// Says what it takes, for people: `a text`.
    pub(super) fn kind(&self) -> String {
        match self {
            Self::Text | Self::WithVariables => "a text".to_owned(),
            Self::Duration => r#"a duration such as "30s""#.to_owned(),
            Self::Quota => r#"a quota such as "10 per second, burst 20""#.to_owned(),
            Self::Reader(_) => "the name of a reader".to_owned(),
            Self::PolicyName => "the name of a policy".to_owned(),
            Self::Words(words) => {
                let words = words.iter().map(|word| format!("{:?}", word.to_string()));
                in_words(words)
            }
            Self::Whole(least, most) if least == most => least.to_string(),
            Self::Whole(..) => "a whole number".to_owned(),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::True => "`true`".to_owned(),
            Self::Tables(Self::Table(table)) => format!("a list of tables, `[[{}]]`", table.name),
            Self::List(_) | Self::Tables(_) => "a list".to_owned(),
            Self::Map { of, .. } => format!("a table with a name for each {of}"),
            Self::Table(_) => "a table".to_owned(),
            Self::Either(forms) => in_words(forms.iter().map(Self::kind)),
        }
    }
}
