//! A Redis server of this run's own.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Stops when dropped.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    pub(crate) version: String,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("`redis-server` on the PATH: install the package redis-server or valkey");
        let mut server = Self {
            child,
            port,
            version: String::new(),
        };
        let started = Instant::now();
        while server.version.is_empty() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "redis-server does not answer"
            );
            sleep(Duration::from_millis(20));
            server.version = server.ask_version().unwrap_or_default();
        }
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn ask_version(&self) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.write_all(b"INFO server\r\nQUIT\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let version = |line: &str| line.strip_prefix("redis_version:").map(str::to_owned);
        text.lines().find_map(version)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
