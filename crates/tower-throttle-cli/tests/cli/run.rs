//! One run of the binary, and files for it.

use std::{
    fs,
    path::PathBuf,
    process::{Command, id},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

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
}

/// Runs the binary with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Run {
    run_with(arguments, &[])
}

/// Runs the binary with these arguments and variables of the environment.
pub(crate) fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_tower-throttle"))
        .args(arguments)
        .env_remove("TOWER_THROTTLE_REDIS")
        .envs(variables.iter().copied())
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

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let folder = self.0.parent().expect("a folder");
        let _ = fs::remove_dir_all(folder);
    }
}
