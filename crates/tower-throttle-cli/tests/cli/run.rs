//! One run of the binary, and files for it.

use std::{
    ffi::OsStr,
    fmt, fs,
    path::PathBuf,
    process::{Command, id},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::support::DEADLINE;

/// The commands that ask Redis.
const LIVE: [&str; 10] = [
    "peek",
    "reset",
    "reset-all",
    "top",
    "control",
    "ban",
    "unban",
    "override",
    "clear",
    "mode",
];

/// What a run printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_str(&self.out) {
            Ok(json) => json,
            Err(error) => panic!("{error}: {self:?}"),
        }
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Asserts that it printed these texts: on stderr if it failed.
    #[track_caller]
    pub(crate) fn says(&self, texts: &[&str]) {
        let printed = if self.code == 2 { &self.err } else { &self.out };
        for text in texts {
            assert!(printed.contains(text), "{text}: {self:#?}");
        }
    }

    /// Asserts that it printed JSON with these fields, and returns all of it.
    #[track_caller]
    pub(crate) fn has(&self, fields: &Value) -> Value {
        let json = self.json();
        assert!(has(&json, fields), "{fields} in {json:#}");
        json
    }
}

/// Returns whether objects have these fields, and lists these items.
fn has(json: &Value, expected: &Value) -> bool {
    match (json, expected) {
        (Value::Object(_), Value::Object(fields)) => {
            fields.iter().all(|(name, field)| has(&json[name], field))
        }
        (Value::Array(items), Value::Array(expected)) => {
            let mut both = items.iter().zip(expected);
            items.len() == expected.len() && both.all(|(item, expected)| has(item, expected))
        }
        _ => json == expected,
    }
}

/// Runs the binary with the arguments of a line. Those in double quotes are one.
pub(crate) fn run(line: &str) -> Run {
    run_with(line, &[] as &[(&str, &str)])
}

/// Runs the binary with the arguments of a line, and variables of the environment.
pub(crate) fn run_with(line: &str, variables: &[(&str, impl AsRef<OsStr>)]) -> Run {
    let parts = line.split('"').enumerate();
    let arguments = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    // The default of two seconds is too short for a busy machine.
    let asks_redis = LIVE.iter().any(|command| line.starts_with(command));
    let patience = format!("--timeout={}s", DEADLINE.as_secs());
    let patience = Some(patience).filter(|_| asks_redis && !line.contains("--timeout"));
    let output = Command::new(env!("CARGO_BIN_EXE_tower-throttle"))
        .args(arguments)
        .args(patience)
        .env_remove("TOWER_THROTTLE_REDIS")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .expect("the binary");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run {
        code: output.status.code().expect("an exit code"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// A file in a temporary folder, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tower-throttle-cli-{}-{number}", id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("limits.toml");
        fs::write(&path, text).expect("a file");
        Self(path)
    }

    /// Runs a line with the path of this file in place of `FILE`, and asserts the exit code.
    #[track_caller]
    pub(crate) fn run(&self, line: &str, code: i32) -> Run {
        run(&line.replace("FILE", &self.to_string())).with_code(code)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

/// The path as one argument of a line.
impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.path())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let folder = self.0.parent().expect("a folder");
        let _ = fs::remove_dir_all(folder);
    }
}
