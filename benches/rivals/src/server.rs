//! A Redis server for this run.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{measured::Used, port::Port};

/// Stops when dropped.
pub struct RedisServer {
    child: Child,
    port: Port,
}

impl RedisServer {
    pub fn start(module: Option<&Path>) -> Self {
        let port = Port::claim();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"]);
        if let Some(module) = module {
            command.arg("--loadmodule").arg(module);
        }
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .expect("`redis-server` on the PATH: install the package redis-server or valkey");
        let server = Self { child, port };
        let started = Instant::now();
        while server.info("server").is_none() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "redis-server does not answer"
            );
            sleep(Duration::from_millis(20));
        }
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Returns the totals of calls and commands, and what they cost.
    pub fn used(&self) -> Used {
        let cpu = self.info("cpu").expect("a server that answers");
        let seconds = ["used_cpu_user:", "used_cpu_sys:"].map(|field| number(&cpu, field));
        let stats = self.info("commandstats").expect("a server that answers");
        let decides = ["cmdstat_evalsha:", "cmdstat_eval:", "cmdstat_cl.throttle:"];
        // cmdstat_evalsha:calls=1000,usec=512,usec_per_call=0.51,...
        let within = [
            "get",
            "set",
            "psetex",
            "setex",
            "incrby",
            "pexpireat",
            "time",
        ];
        let within = within.map(|command| format!("cmdstat_{command}:"));
        let calls = |command: &str| number(&stats, &format!("{command}calls="));
        Used {
            calls: decides.into_iter().map(calls).sum(),
            commands: within.iter().map(|command| calls(command)).sum(),
            cpu_us: seconds.iter().sum::<f64>() * 1_000_000.0,
        }
    }

    /// Returns the bytes in use once that no longer changes, because Redis rehashes its tables
    /// step by step.
    pub fn settled_bytes(&self) -> f64 {
        let mut before = f64::MIN;
        loop {
            sleep(Duration::from_millis(500));
            let memory = self.info("memory").expect("a server that answers");
            let used = number(&memory, "used_memory:");
            if (used - before).abs() < 4_096.0 {
                return used;
            }
            before = used;
        }
    }

    pub fn keys(&self) -> u64 {
        let answer = self.ask("DBSIZE").expect("a server that answers");
        let digits = answer
            .strip_prefix(':')
            .and_then(|rest| rest.lines().next());
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("a number")
    }

    pub fn forget_all(&self) {
        let answer = self.ask("FLUSHALL").expect("a server that answers");
        assert!(answer.starts_with("+OK"), "{answer}");
    }

    fn info(&self, section: &str) -> Option<String> {
        let text = self.ask(&format!("INFO {section}"))?;
        text.starts_with('$').then(|| text.to_lowercase())
    }

    fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number())).ok()?;
        write!(stream, "{command}\r\nQUIT\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the version, as `redis-server --version` prints it.
pub fn version() -> String {
    let output = Command::new("redis-server").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let version = text.split(' ').find_map(|word| word.strip_prefix("v="));
    version.unwrap_or("not found").to_owned()
}

/// Returns the number of a field; 0 without the field.
fn number(info: &str, field: &str) -> f64 {
    let line = info.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split([',', '\r']).next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}
