//! Writes metrics as text, for Prometheus and other collectors.

use std::fmt::{Display, Write};

use super::families::{Family, Kind, Sink, Value};

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
    family: Family,
}

impl Exposition {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            text: String::new(),
            family: Family::default(),
        }
    }

    /// Returns the text, with the end that the format asks for.
    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Sink for Exposition {
    fn family(&mut self, family: Family) {
        self.family = family;
        let Family { name, kind, help } = family;
        // A counter's samples end in `_total`. Only OpenMetrics takes that off the family.
        let is_counter = kind == Kind::Counter && self.format == Format::Prometheus;
        let suffix = if is_counter { "_total" } else { "" };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let text = &mut self.text;
        let comments = [("HELP", help), ("TYPE", kind)];
        for (comment, value) in comments {
            for part in ["# ", comment, " ", name, suffix, " "] {
                text.push_str(part);
            }
            escape(text, value);
            text.push('\n');
        }
    }

    fn sample(&mut self, suffix: &'static str, labels: &[(&'static str, &str)], value: Value) {
        match value {
            Value::Count(count) => self.write(suffix, labels, count),
            Value::Number(number) => self.write(suffix, labels, number),
        }
    }
}

impl Exposition {
    fn write(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut self.text;
        text.push_str(self.family.name);
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
