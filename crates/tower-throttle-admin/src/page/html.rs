//! [`Html`]: markup, in which texts of others are escaped.

/// Markup. What is known only at run time is added by methods that escape it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Html(String);

/// The most characters that a name or a reason shows.
const MOST_SHOWN: usize = 60;

impl Html {
    pub(super) const fn new() -> Self {
        Self(String::new())
    }

    /// Adds markup of this crate.
    pub(super) fn markup(mut self, markup: &'static str) -> Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, escaped.
    pub(super) fn text(mut self, text: &str) -> Self {
        escape(text, &mut self.0);
        self
    }

    /// Adds a number, with commas.
    pub(super) fn number(self, number: u64) -> Self {
        self.text(&super::words::count(number))
    }

    /// Adds a text that an operator or a client chose: on its own, whatever its direction, and
    /// shortened.
    pub(super) fn foreign(self, text: &str) -> Self {
        let is_whole = text.chars().count() <= MOST_SHOWN;
        let mut shown = String::new();
        shown.extend(
            text.chars()
                .take(if is_whole { MOST_SHOWN } else { MOST_SHOWN - 1 }),
        );
        if is_whole {
            return self.markup("<bdi>").text(&shown).markup("</bdi>");
        }
        shown.push('…');
        self.markup("<bdi title=\"")
            .text(text)
            .markup("\">")
            .text(&shown)
            .markup("</bdi>")
    }

    /// Adds markup for each item.
    pub(super) fn each<T>(
        self,
        items: impl IntoIterator<Item = T>,
        add: impl Fn(Self, T) -> Self,
    ) -> Self {
        items.into_iter().fold(self, add)
    }

    /// Adds markup if there is a value.
    pub(super) fn maybe<T>(self, value: Option<T>, add: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => add(self, value),
            None => self,
        }
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// Writes a text so that it is the same text in an element and in a quoted attribute. Characters
/// that are not seen, or that turn the direction of what is around the text, are replaced.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            hidden if is_hidden(hidden) => out.push(char::REPLACEMENT_CHARACTER),
            other => out.push(other),
        }
    }
}

/// The script has the same list.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Fills the placeholders of a template, which are written as `{{name}}`.
pub(super) fn fill(template: &str, content: impl Fn(&str) -> Html) -> String {
    let mut filled = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").unwrap_or((after, ""));
        filled.push_str(before);
        filled.push_str(&content(name).into_string());
        rest = behind;
    }
    filled.push_str(rest);
    filled
}
