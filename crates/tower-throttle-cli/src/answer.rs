//! What a command prints, and its exit code.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use serde_json::{Value, json};
use tower_throttle::{ConfigError, StoreError, control::ControlError};
use tower_throttle_config::{ConfigErrors, ConfigProblem, UnknownName};

/// The answer of a command that did what it was asked for.
pub(crate) struct Answer {
    /// For people, on stdout.
    pub(crate) text: String,
    /// What is wrong, for people, on stderr.
    pub(crate) problems: String,
    /// For programs, on stdout.
    pub(crate) json: Value,
    /// Whether all is fine. The exit code is 0 then, and otherwise 1.
    pub(crate) is_fine: bool,
}

impl Answer {
    pub(crate) fn fine(text: impl Into<String>, json: Value) -> Self {
        Self {
            text: text.into(),
            problems: String::new(),
            json,
            is_fine: true,
        }
    }

    /// Sets whether all is fine.
    pub(crate) fn fine_if(self, is_fine: bool) -> Self {
        Self { is_fine, ..self }
    }
}

/// Why a command could not do what it was asked for. The exit code is 2.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    problems: Option<Value>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            problems: None,
        }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self {
            message: errors.to_string(),
            problems: Some(problems(&errors)),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<UnknownName> for Failure {
    fn from(error: UnknownName) -> Self {
        Self::new(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(format!("Redis: {error}"))
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        Self::new(error.to_string())
    }
}

/// Returns the mistakes of a file for programs.
pub(crate) fn problems(errors: &ConfigErrors) -> Value {
    let problem = |problem: &ConfigProblem| {
        json!({
            "file": problem.file(),
            "line": problem.line(),
            "column": problem.column(),
            "path": problem.path(),
            "code": problem.code(),
            "message": problem.message(),
        })
    };
    errors.problems().iter().map(problem).collect()
}

/// Prints what came out, and returns the exit code.
pub(crate) fn print(answered: Result<Answer, Failure>, is_json: bool) -> ExitCode {
    let (text, problems, json, code) = match answered {
        Ok(answer) => {
            let code = if answer.is_fine { 0 } else { 1 };
            (answer.text, answer.problems, answer.json, code)
        }
        Err(Failure { message, problems }) => {
            let json = json!({ "error": message, "problems": problems });
            (String::new(), message, json, 2)
        }
    };
    let printed = match is_json {
        true => write(io::stdout(), &json.to_string()),
        false => write(io::stdout(), &text).and_then(|()| write(io::stderr(), &problems)),
    };
    match printed {
        // The reader had enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::from(code),
    }
}

fn write(mut to: impl Write, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    writeln!(to, "{}", text.trim_end())?;
    to.flush()
}
