//! Writes metrics as text, for Prometheus and other collectors.

use std::fmt::{Display, Write};

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// A text of metric families.
pub(super) struct Exposition {
    format: Format,
    text: String,
}

/// A metric family: all samples of one name.
pub(super) struct Family<'a> {
    name: &'a str,
    text: &'a mut String,
}

impl Exposition {
    pub(super) const fn new(format: Format) -> Self {
        Self {
            format,
            text: String::new(),
        }
    }

    /// Writes a family. `name` has no suffix, also for a counter. `kind` is `counter`, `gauge`
    /// or `histogram`. Each family is written once, with the samples of all limiters.
    pub(super) fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl FnOnce(&mut Family<'_>),
    ) {
        // A counter's samples end in `_total`. Only OpenMetrics takes that off the family.
        let is_counter = kind == "counter" && self.format == Format::Prometheus;
        let suffix = if is_counter { "_total" } else { "" };
        let text = &mut self.text;
        let comments = [("HELP", help), ("TYPE", kind)];
        for (comment, value) in comments {
            for part in ["# ", comment, " ", name, suffix, " "] {
                text.push_str(part);
            }
            escape(text, value);
            text.push('\n');
        }
        samples(&mut Family { name, text });
    }

    /// Returns the text, with the end that the format asks for.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Family<'_> {
    /// Writes a sample. The suffix belongs to the kind: `_total` for a counter.
    pub(super) fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut *self.text;
        text.push_str(self.name);
        text.push_str(suffix);
        let mut before = '{';
        for (label, value) in labels {
            text.push(before);
            text.push_str(label);
            text.push_str("=\"");
            escape(text, value);
            text.push('"');
            before = ',';
        }
        if !labels.is_empty() {
            text.push('}');
        }
        // Writing to a string never fails.
        let _ = writeln!(text, " {value}");
    }
}

/// Adds a text, escaped as both formats ask for in label values. OpenMetrics asks for the same
/// in `HELP`; this crate's own have nothing to escape.
fn escape(text: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(char),
        }
    }
}
