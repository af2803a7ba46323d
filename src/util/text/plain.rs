//! Texts of others, as they can be shown.

use std::borrow::Cow;

/// Returns a text of others as it can be shown on a terminal, in a log or on a page.
///
/// Each character that ends a line, is not seen, or changes the direction of the text around it
/// becomes U+FFFD. So a file name, a label or an error of a server cannot forge a line, and cannot
/// control a terminal. All other characters stay as they are, in any language.
///
/// ```
/// use tower_throttle::plain_text;
///
/// assert_eq!(plain_text("Łódź, 東京"), "Łódź, 東京");
/// assert_eq!(plain_text("limits\n\u{1b}[31m\u{202e}lmot"), "limits\u{fffd}\u{fffd}[31m\u{fffd}lmot");
/// ```
#[must_use]
pub fn plain_text(text: &str) -> Cow<'_, str> {
    match text.contains(is_hidden) {
        true => Cow::Owned(text.replace(is_hidden, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

fn is_hidden(character: char) -> bool {
    // Marks and isolates of direction, and the ends of a line and of a paragraph.
    let is_format = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || is_format
}
