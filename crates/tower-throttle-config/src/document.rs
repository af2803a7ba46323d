//! The text of a file: its values.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};
use toml_parser::{Source, lexer::TokenKind};

use super::{ConfigErrors, check, problem::Problem, remainder, tables};

/// Tables and lists inside each other: deeper ones are an error.
const MAX_DEPTH: usize = 32;

/// A file that was read.
pub(crate) struct Document {
    pub(crate) path: Option<PathBuf>,
    text: String,
    /// The values, as the schema and serde take them. A date, which no field takes, is `null`.
    pub(crate) value: Value,
    pub(crate) tables: tables::File,
}

impl Document {
    /// Reads a text and checks its form. With mistakes of form, it is a document of the tables without.
    pub(crate) fn read(
        text: &str,
        path: Option<&Path>,
    ) -> Result<(Self, Vec<Problem>), ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let alone = |at, code, message| ConfigErrors::alone(path, Some((text, at)), code, message);
        if let Some(offset) = too_deep(text) {
            let message = format!(
                "lists and tables are more than {MAX_DEPTH} levels deep; write flatter ones"
            );
            return Err(alone(offset, "file-too-deep", message));
        }
        let (tree, errors) = DeTable::parse_recoverable(text);
        let offset_of = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
        // All others may come from it.
        if let Some(first) = errors.iter().min_by_key(|error| offset_of(error)) {
            let message = format!("this is not TOML: {}", first.message());
            return Err(alone(offset_of(first), "file-syntax", message));
        }
        let mut value = table(tree.get_ref());
        let problems = check::check(&value);
        let remainder = remainder::keep(&mut value, &problems);
        let tables = match (tables::File::deserialize(&value), &*problems) {
            (Ok(tables), _) if remainder.is_some() => tables,
            // The check accepts no more than serde does. If it did, this reports it.
            (Err(error), []) => {
                return Err(alone(
                    0,
                    "wrong-type",
                    format!("this cannot be read: {error}"),
                ));
            }
            _ => return Err(ConfigErrors::new(problems, path, text)),
        };
        let (path, text) = (path.map(Into::into), text.to_owned());
        let document = Self {
            path,
            text,
            value,
            tables,
        };
        Ok((document, problems))
    }

    /// Returns an error if there are problems.
    pub(crate) fn finish(&self, problems: Vec<Problem>) -> Result<(), ConfigErrors> {
        let path = self.path.as_deref();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(ConfigErrors::new(problems, path, &self.text)),
        }
    }
}

/// Returns where lists and tables get too deep, without building them: to drop a deep tree would
/// overflow the stack. Each bracket and each dot of a name is a level.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut outer) = (0, Vec::new());
    for token in Source::new(text).lex() {
        match token.kind() {
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => {
                outer.push(depth);
                depth += 1;
            }
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => {
                depth = outer.pop().unwrap_or_default();
            }
            TokenKind::Dot => depth += 1,
            TokenKind::Comma | TokenKind::Newline => {
                depth = outer.last().map_or(0, |depth| depth + 1);
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(token.span().start());
        }
    }
    None
}

fn table(table: &DeTable<'_>) -> Value {
    let entries = table.iter();
    let entries =
        entries.map(|(name, value)| (name.get_ref().to_string(), value_of(value.get_ref())));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn value_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(text) => {
            let whole = i128::from_str_radix(text.as_str(), text.radix()).ok();
            number(whole.and_then(Number::from_i128))
        }
        DeValue::Float(text) => number(text.as_str().parse().ok().and_then(Number::from_f64)),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(_) => Value::Null,
        DeValue::Array(items) => items.iter().map(|item| value_of(item.get_ref())).collect(),
        DeValue::Table(entries) => table(entries),
    }
}

/// A number that JSON does not have is too large.
fn number(number: Option<Number>) -> Value {
    number.map_or(f64::MAX.into(), Value::Number)
}
