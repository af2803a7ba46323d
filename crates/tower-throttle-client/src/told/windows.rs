//! What is left of the partner's windows: `RateLimit` of the IETF, and fields in pairs.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderName;
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};

use super::{Dialects, Reader, TimeUnit, dialects::Form, number::number, time};

/// A window of the partner.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) name: Option<String>,
    /// How many calls it still admits. A fraction of a call is none.
    pub(super) remaining: u64,
    /// How long it lasts.
    pub(super) reset: Duration,
}

/// Returns all windows that can be read. Of dialects with the same field for what is left, the first
/// counts.
pub(super) fn read(reader: &mut Reader<'_>, dialects: &Dialects) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut found: Vec<&HeaderName> = Vec::new();
    for dialect in dialects.all() {
        match &dialect.0 {
            Form::Structured(field) => windows.extend(of_ietf(reader, field)),
            Form::Window {
                name,
                remaining,
                reset,
                unit,
            } if !found.contains(&remaining) => {
                let left = reader.values(remaining, |text| Some(number(text)?.whole));
                let resets = reader.times(reset, *unit);
                if left.is_empty() || resets.is_empty() {
                    continue;
                }
                if left.len() != resets.len() {
                    // Which of them belong together is not known.
                    reader.cannot_read(remaining);
                    continue;
                }
                found.push(remaining);
                let pairs = left.into_iter().zip(resets);
                windows.extend(pairs.map(|(remaining, reset)| Window {
                    name: name.as_deref().map(str::to_owned),
                    remaining,
                    reset,
                }));
            }
            _ => {}
        }
    }
    windows
}

/// Reads the lines of a field one by one, or as one value if no line alone states a window (RFC 9651,
/// section 4.2).
fn of_ietf(reader: &mut Reader<'_>, field: &HeaderName) -> Vec<Window> {
    let lines = reader.lines(field);
    let each: Vec<_> = lines.iter().map(|line| of_line(line)).collect();
    let has_window = each.iter().flatten().any(|windows| !windows.is_empty());
    let each = match has_window || lines.len() < 2 {
        true => each,
        false => vec![of_line(&lines.join(", "))],
    };
    if each.contains(&None) {
        reader.cannot_read(field);
    }
    each.into_iter().flatten().flatten().collect()
}

/// Reads the list of drafts 8 and later (`"day";r=50;t=30`), or the dictionary of draft 7
/// (`limit=100, remaining=50, reset=30`). `None` if it is neither, or if a number is not one.
fn of_line(text: &str) -> Option<Vec<Window>> {
    let fields = Parser::new(text).parse::<Dictionary>().ok();
    let list = Parser::new(text).parse::<List>().ok();
    if fields.is_none() && list.is_none() {
        return None;
    }
    let mut windows = Vec::new();
    for entry in list.iter().flatten() {
        let ListEntry::Item(item) = entry else {
            return None;
        };
        let name = match &item.bare_item {
            BareItem::String(name) => Some(name.as_str().to_owned()),
            BareItem::Token(name) => Some(name.as_str().to_owned()),
            _ => None,
        };
        let part = |name| item.params.get(name).map(Some);
        windows.extend(window(name, part("r"), part("t"))?);
    }
    let field = |name| {
        let entry = fields.as_ref()?.get(name)?;
        Some(match entry {
            ListEntry::Item(item) => Some(&item.bare_item),
            ListEntry::InnerList(_) => None,
        })
    };
    windows.extend(window(None, field("remaining"), field("reset"))?);
    Some(windows)
}

/// Returns the window, and `Some(None)` if a part of it is absent. `None` if a part is not a number. A part
/// that is not one value is `Some(None)`.
fn window(
    name: Option<String>,
    remaining: Option<Option<&BareItem>>,
    reset: Option<Option<&BareItem>>,
) -> Option<Option<Window>> {
    let text = |item: Option<&BareItem>| match item? {
        BareItem::Integer(number) => Some(number.to_string()),
        BareItem::Decimal(number) => Some(number.to_string()),
        _ => None,
    };
    let remaining = remaining.map(|item| number(&text(item)?));
    let reset = reset.map(|item| time::until(&text(item)?, TimeUnit::Seconds, UNIX_EPOCH));
    Some(match (remaining, reset) {
        (Some(None), _) | (_, Some(None)) => return None,
        (Some(Some(remaining)), Some(Some(reset))) => Some(Window {
            name,
            remaining: remaining.whole,
            reset,
        }),
        _ => None,
    })
}
