//! Reads TOML, with the place of each value.

use std::{cell::Cell, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    problem::{Code, ConfigProblem},
    tree::{Entry, MAX_DEPTH, Node, Place, Value},
};

/// Reads a text, or says where it is not TOML.
pub(super) fn read(text: &str) -> Result<Node, Vec<ConfigProblem>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = Lines::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problems = errors.iter().map(|error| {
            let place = error.span().map(|span| lines.place(&span));
            let message = format!("this is not TOML: {}", error.message());
            ConfigProblem::new(place, String::new(), Code::Syntax, message)
        });
        return Err(problems.collect());
    }
    let place = Some(Place { line: 1, column: 1 });
    let value = entries(table.into_inner(), &lines, 0).map_err(|problem| vec![problem])?;
    Ok(Node { value, place })
}

fn node(
    value: Spanned<DeValue<'_>>,
    lines: &Lines<'_>,
    depth: usize,
) -> Result<Node, ConfigProblem> {
    let place = Some(lines.place(&value.span()));
    if depth > MAX_DEPTH {
        return Err(ConfigProblem::too_deep(place));
    }
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Whole(number),
            Err(_) => Value::Fraction(f64::INFINITY),
        },
        DeValue::Float(number) => Value::Fraction(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Array(values) => {
            let nodes = values
                .into_iter()
                .map(|value| node(value, lines, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => entries(table, lines, depth)?,
    };
    Ok(Node { value, place })
}

fn entries(table: DeTable<'_>, lines: &Lines<'_>, depth: usize) -> Result<Value, ConfigProblem> {
    let entries = table.into_iter().map(|(name, value)| {
        Ok(Entry {
            place: Some(lines.place(&name.span())),
            name: name.into_inner().into_owned(),
            node: node(value, lines, depth + 1)?,
        })
    });
    let mut entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| entry.place);
    Ok(Value::Table(entries))
}

/// Where each line of a text starts.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// The byte that was asked for last, and its column. In a long line, the next one is counted
    /// from there.
    last: Cell<(usize, usize)>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(ends).collect(),
            last: Cell::new((0, 1)),
        }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        let line = self.starts.partition_point(|start| *start <= span.start);
        let start = line.checked_sub(1).and_then(|index| self.starts.get(index));
        let start = start.copied().unwrap_or(0);
        let (last, column) = self.last.get();
        let (from, column) = match (start..=span.start).contains(&last) {
            true => (last, column),
            false => (start, 1),
        };
        let between = self.text.get(from..span.start);
        let column = column + between.map_or(0, |between| between.chars().count());
        self.last.set((span.start, column));
        Place { line, column }
    }
}
