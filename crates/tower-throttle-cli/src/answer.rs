//! What a command prints, and its exit code.

use std::{
    borrow::Cow,
    io::{self, Write},
    process::ExitCode,
};

use serde_json::{Value, json};
use tower_throttle::plain_text;
use tower_throttle_config::ConfigErrors;

use crate::{error::Result, time::span};

/// The answer of a command that did what it was asked for.
pub(crate) struct Answer {
    /// For people.
    pub(crate) text: String,
    /// For programs.
    pub(crate) json: Value,
    /// Whether all is fine. The exit code is 0 then, and otherwise 1.
    pub(crate) is_fine: bool,
}

impl Answer {
    pub(crate) fn fine(text: impl Into<String>, json: Value) -> Self {
        Self {
            text: text.into(),
            json,
            is_fine: true,
        }
    }

    pub(crate) fn fine_if(self, is_fine: bool) -> Self {
        Self { is_fine, ..self }
    }
}

/// Prints an answer on stdout, or a failure on stderr, and returns the exit code.
pub(crate) fn print(answered: Result<Answer>, is_json: bool) -> ExitCode {
    let (text, json, code) = match answered {
        Ok(answer) => (answer.text, answer.json, u8::from(!answer.is_fine)),
        Err(failure) => {
            let problems = failure.downcast_ref().map(problems);
            let message = failure.to_string();
            let json = json!({ "error": message, "problems": problems });
            (message, json, 2)
        }
    };
    let text = text.trim_end().split('\n').map(plain_text);
    let text = text.collect::<Vec<_>>().join("\n");
    let printed = match (is_json, code) {
        (true, _) => writeln!(io::stdout(), "{}", escaped(&json)),
        (false, 2) => writeln!(io::stderr(), "{text}"),
        (false, _) => writeln!(io::stdout(), "{text}"),
    };
    match printed {
        // The reader had enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::from(code),
    }
}

/// Writes JSON in which characters that a terminal must not get are escaped.
fn escaped(json: &Value) -> String {
    let mut text = String::new();
    for character in json.to_string().chars() {
        match plain_text(character.encode_utf8(&mut [0; 4])) {
            Cow::Borrowed(plain) => text += plain,
            Cow::Owned(_) => text += &format!("\\u{:04x}", u32::from(character)),
        }
    }
    text
}

/// Returns the mistakes of a file for programs.
pub(crate) fn problems(errors: &ConfigErrors) -> Value {
    let problems = errors.problems().iter().map(|problem| {
        json!({
            "file": problem.file(),
            "line": problem.line(),
            "column": problem.column(),
            "path": problem.path(),
            "code": problem.code(),
            "message": problem.message(),
        })
    });
    problems.collect()
}

/// Prints fields of JSON for people, each on a line of its own. Those that are empty are left out.
pub(crate) fn lines(json: &Value, names: &[&str]) -> String {
    let lines = fields(json, names).map(|(name, text)| format!("  {name:<12} {text}\n"));
    lines.collect()
}

/// Prints a list of JSON for people: one line for each object in it, with these fields.
pub(crate) fn rows(heading: &str, list: &[Value], names: &[&str]) -> String {
    let rows = list.iter().map(|json| {
        let fields = fields(json, names).map(|(name, text)| format!("{name} {text}"));
        let fields: Vec<_> = fields.collect();
        format!("  {heading:<12} {}\n", fields.join(", "))
    });
    rows.collect()
}

fn fields<'a>(json: &Value, names: &[&'a str]) -> impl Iterator<Item = (&'a str, String)> {
    names.iter().filter_map(|name| match json.get(name)? {
        Value::Null => None,
        Value::String(text) => Some((*name, plain_text(text).into_owned())),
        Value::Array(texts) => {
            let texts: Vec<_> = texts.iter().filter_map(Value::as_str).collect();
            (!texts.is_empty()).then(|| (*name, texts.join(", ")))
        }
        value => match name.strip_suffix("_ms") {
            Some(name) => Some((name, span(value.as_u64()?))),
            None => Some((*name, value.to_string())),
        },
    })
}
