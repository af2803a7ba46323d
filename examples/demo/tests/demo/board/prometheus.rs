//! A Prometheus server, and its `promtool`.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    folder::Folder,
    support::{DEADLINE, eventually, port::Port},
};

const MISSING: &str = "these tests need `prometheus` and `promtool` on the PATH: install the \
    package `prometheus`, or run `scripts/test`, which does";

/// Runs `promtool` on a file. Returns what it printed, as an error if it failed.
pub(super) fn promtool(command: &[&str], file: &Path) -> Result<String, String> {
    let output = Command::new("promtool").args(command).arg(file).output();
    let output = output.expect(MISSING);
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if output.status.success() {
        Ok(printed)
    } else {
        Err(printed)
    }
}

/// A Prometheus server that scrapes each second. It stops when dropped.
pub(super) struct Prometheus {
    child: Child,
    port: Port,
    _folder: Folder,
}

impl Prometheus {
    /// Starts a server that scrapes these addresses as the job `demo`, and waits until it has.
    pub(super) fn start(targets: &[SocketAddr], rules: &Path) -> Self {
        let (port, folder) = (Port::claim(), Folder::new());
        let targets: Vec<_> = targets.iter().map(SocketAddr::to_string).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs:\n  - job_name: demo\n    static_configs: [{{targets: {targets:?}}}]\n"
        );
        let file = folder.0.join("prometheus.yml");
        fs::write(&file, config).expect("a file");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.0.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect(MISSING);
        let mut server = Self {
            child,
            port,
            _folder: folder,
        };
        eventually("the first scrapes", || {
            assert_eq!(
                server.child.try_wait().expect("its state"),
                None,
                "it ended"
            );
            server.is_scraping(targets.len())
        });
        server
    }

    fn is_scraping(&self, targets: usize) -> bool {
        let up = self.request("/api/v1/query?query=up==1");
        let up = up
            .ok()
            .and_then(|body| serde_json::from_str::<Value>(&body).ok());
        let found = up.and_then(|up| Some(up["data"]["result"].as_array()?.len()));
        found == Some(targets)
    }

    /// Returns the series that an expression results in.
    pub(super) fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"));
        if answer["status"] != "success" {
            return Err(answer["error"].to_string());
        }
        let series = answer["data"]["result"].as_array().expect("series");
        Ok(series.clone())
    }

    pub(super) fn get(&self, path: &str) -> Value {
        let body = self.request(path).expect("an answer");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body:?}"))
    }

    /// Asks with HTTP/1.0, so that the body comes in one piece.
    fn request(&self, path: &str) -> std::io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()));
        let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (_, body) = text
            .split_once("\r\n\r\n")
            .ok_or(ErrorKind::UnexpectedEof)?;
        Ok(body.to_owned())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
