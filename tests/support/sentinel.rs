//! A sentinel of a Redis server.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use super::{eventually, port::Port, try_command};

/// Listens on a free port of the loopback, and ends when dropped.
#[derive(Debug)]
pub struct Sentinel {
    pub child: Child,
    pub port: Port,
    folder: PathBuf,
}

impl Sentinel {
    /// The name under which sentinels know the primary.
    pub const NAME: &str = "limits";

    /// Starts a sentinel. As many as `quorum` must think that the primary is down.
    pub fn start(primary: u16, quorum: usize) -> Self {
        Self::with(primary, quorum, &[])
    }

    /// Starts a sentinel with options, as `redis-server` takes them on its command line.
    pub fn with(primary: u16, quorum: usize, options: &[&str]) -> Self {
        let port = Port::claim();
        let name = format!("tower-throttle-sentinel-{}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let file = folder.join("sentinel.conf");
        // The sentinel writes there what it learns.
        std::fs::write(&file, "").expect("a file");
        let child = Command::new("redis-server")
            .arg(&file)
            .args(["--sentinel", "--bind", "127.0.0.1"])
            .args(["--port", &port.to_string()])
            .arg("--dir")
            .arg(&folder)
            .args(["--logfile", "sentinel.log"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server");
        let sentinel = Self {
            child,
            port,
            folder,
        };
        eventually("an answer of a sentinel", || {
            try_command(sentinel.port.number(), &["PING"]).is_ok()
        });
        let (primary, quorum) = (primary.to_string(), quorum.to_string());
        sentinel.command(&["MONITOR", Self::NAME, "127.0.0.1", &primary, &quorum]);
        sentinel
    }

    pub fn command(&self, words: &[&str]) -> String {
        let words = [&["SENTINEL"], words].concat();
        match try_command(self.port.number(), &words) {
            Ok(reply) => reply,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }

    /// Returns the last lines of its log.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("sentinel.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the sentinel on port {}:\n{}", self.port, self.last_words());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
