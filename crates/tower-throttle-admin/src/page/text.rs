//! Parts of markup that many others have: texts of others, badges, times.
//!
//! `maud` escapes all texts. [`written`] leaves out what is not seen.

use std::time::SystemTime;

use maud::{Markup, html};
use serde::Serialize;
use tower_throttle::plain_text;

use super::words::{ago, ahead};
use crate::time::epoch_ms;

/// The most characters that a name or a reason shows.
const MOST_SHOWN: usize = 60;

/// How something is: the class of its color, and its sign beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Bad,
    Warn,
    Quiet,
}

impl Tone {
    pub(super) const fn class(self) -> &'static str {
        self.look().0
    }

    /// Returns its class and its sign.
    const fn look(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Good => ("good", Some("✓")),
            Self::Bad => ("bad", Some("✕")),
            Self::Warn => ("warn", Some("!")),
            Self::Quiet => ("quiet", None),
        }
    }
}

/// Shows a text that an operator or a client chose: on its own, whatever its direction, and
/// shortened.
pub(super) fn foreign(text: &str) -> Markup {
    let is_whole = text.chars().count() <= MOST_SHOWN;
    let shown: String = text.chars().take(MOST_SHOWN - 1).collect();
    html! {
        @if is_whole { bdi { (text) } } @else { bdi title=(text) { (shown) "…" } }
    }
}

/// Writes texts as JSON, for an attribute.
pub(super) fn json(texts: &impl Serialize) -> String {
    serde_json::to_string(texts).unwrap_or_default()
}

/// Shows a text after the sign of its tone.
pub(super) fn signed(tone: Tone, text: &str) -> Markup {
    html! {
        @if let Some(sign) = tone.look().1 { span.sign aria-hidden="true" { (sign) } }
        (text)
    }
}

pub(super) fn badge(tone: Tone, text: &str) -> Markup {
    html! { span class={ "badge " (tone.class()) } { (text) } }
}

/// Shows how long ago a time was. The script keeps it true.
pub(super) fn since(at: SystemTime) -> Markup {
    let (at_ms, now_ms) = (epoch_ms(at), epoch_ms(SystemTime::now()));
    html! { span.time data-at=(at_ms) data-form="ago" { (ago(at_ms, now_ms)) } }
}

/// Shows in how long a time will be. The script keeps it true.
pub(super) fn until(at: SystemTime) -> Markup {
    let (at_ms, now_ms) = (epoch_ms(at), epoch_ms(SystemTime::now()));
    html! { span.time data-at=(at_ms) data-form="in" { (ahead(at_ms, now_ms)) } }
}

/// Shows remarks that apply, with dots between them.
pub(super) fn remarks(all: &[Option<String>]) -> Markup {
    let all: Vec<&str> = all.iter().flatten().map(String::as_str).collect();
    html! { @if !all.is_empty() { small { (all.join(" · ")) } } }
}

/// Returns markup as it is sent: characters that are not seen, or that turn the direction of what is
/// around them, are replaced.
pub(super) fn written(markup: Markup) -> String {
    plain_text(&markup.into_string()).into_owned()
}
