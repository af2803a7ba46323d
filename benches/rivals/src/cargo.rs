//! Programs that are built in addition.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Builds redis-cell, the module for Redis, where that is possible.
pub fn redis_cell() -> Option<PathBuf> {
    let folder = env::current_exe().ok()?.parent()?.join("redis-cell");
    let manifest = Path::new(HERE).join("../redis-cell/Cargo.toml");
    let status = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--release", "--package", "redis-cell"])
        .args(["--crate-type", "cdylib", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&folder)
        .status();
    let name = format!(
        "{}redis_cell{}",
        env::consts::DLL_PREFIX,
        env::consts::DLL_SUFFIX
    );
    let module = folder.join("release").join(name);
    (status.is_ok_and(|status| status.success()) && module.exists()).then_some(module)
}

/// Returns what another program of this package prints.
pub fn run(program: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args([
            "run",
            "--quiet",
            "--release",
            "--bin",
            program,
            "--manifest-path",
        ])
        .arg(Path::new(HERE).join("Cargo.toml"))
        .output()
        .expect("Cargo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8(output.stdout).expect("a text")
}
