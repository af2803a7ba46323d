//! Signals to processes that a test started.

use std::process::Command;

/// Freezes a process until it is dropped.
#[derive(Debug)]
pub(crate) struct Frozen(u32);

pub(crate) fn freeze(pid: u32) -> Frozen {
    send("-STOP", pid);
    Frozen(pid)
}

/// Sends SIGTERM.
pub(crate) fn terminate(pid: u32) {
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

#[test]
fn a_frozen_server_answers_when_it_thaws() {
    use crate::support::RedisServer;
    use std::{
        io::{Read, Write},
        net::TcpStream,
        time::Duration,
    };

    let server = RedisServer::start();
    let frozen = freeze(server.pid());
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("the kernel accepts");
    stream.write_all(b"PING\r\n").expect("room");
    let mut pong = [0; 7];
    let short = Some(Duration::from_millis(100));
    stream.set_read_timeout(short).expect("an option");
    assert!(stream.read(&mut pong).is_err(), "it stands still");
    drop(frozen);
    let long = Some(crate::support::DEADLINE);
    stream.set_read_timeout(long).expect("an option");
    stream.read_exact(&mut pong).expect("an answer");
    assert_eq!(&pong, b"+PONG\r\n");
}
