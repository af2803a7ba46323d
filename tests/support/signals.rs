//! Signals to processes that a test started.

use std::process::Command;

use super::RedisServer;

/// Freezes a process until it is dropped.
#[derive(Debug)]
pub struct Frozen(u32);

impl Frozen {
    pub fn new(server: &RedisServer) -> Self {
        freeze(server.pid())
    }
}

pub fn freeze(pid: u32) -> Frozen {
    send("-STOP", pid);
    Frozen(pid)
}

/// Sends SIGTERM.
pub fn terminate(pid: u32) {
    send("-TERM", pid);
}

fn send(signal: &str, pid: u32) {
    let kill = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    let status = kill.expect("the command `kill`");
    assert!(status.success(), "kill {signal} {pid}: {status}");
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let mut kill = Command::new("kill");
        // It may have been killed meanwhile.
        let _ = kill.args(["-CONT", &self.0.to_string()]).output();
    }
}
