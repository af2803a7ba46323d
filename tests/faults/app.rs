//! Applications in processes of their own: this program, started again.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::AtomicU32,
};

use tokio::signal::unix::{SignalKind, signal};

use crate::ledger;
use crate::prelude::*;

/// The environment variable that carries the orders for the other process.
const ORDER: &str = "TT_FAULTS_APP";
const READY: &str = "the application is ready";

/// An application that makes requests at [`Load::OF_ONE_IN_THREE`] until it is stopped.
#[derive(Debug)]
pub(crate) struct App {
    child: Child,
    ledger: PathBuf,
}

impl App {
    /// Returns when the application has started; the store may be absent.
    pub(crate) fn start(process: u8, url: &str, per_s: u64, burst: u64) -> Self {
        Self::of_version("tt", process, url, per_s, burst)
    }

    /// Starts an application of another version, whose keys have this prefix.
    pub(crate) fn of_version(
        version: &str,
        process: u8,
        url: &str,
        per_s: u64,
        burst: u64,
    ) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-throttle-app-{}-{number}", std::process::id());
        let ledger = std::env::temp_dir().join(name);
        let order = format!(
            "{process} {url} {per_s} {burst} {version} {}",
            ledger.display()
        );
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "--nocapture"])
            .arg("app::an_application_leaves_its_ledger")
            .env(ORDER, order)
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let output = child.stdout.as_mut().expect("its output");
        let mut lines = BufReader::new(output).lines();
        let is_ready = lines.any(|line| line.is_ok_and(|line| line.contains(READY)));
        assert!(is_ready, "it ended before it was ready");
        Self { child, ledger }
    }

    /// Stops the application by SIGTERM. Returns the outcomes of its requests.
    pub(crate) fn stop(mut self) -> Vec<Entry> {
        signals::terminate(self.child.id());
        let status = self.child.wait().expect("an end");
        assert!(status.success(), "{status}");
        ledger::read(&self.ledger).expect("its ledger")
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.ledger);
    }
}

/// The other process runs this test, too, with its orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_leaves_its_ledger() {
    if let Ok(order) = std::env::var(ORDER) {
        return obey(&order).await;
    }
    let server = RedisServer::start();
    let app = App::start(7, &server.url(), 0, 1_000_000);
    wait::until("requests", || server.keys().len() > 100);
    let path = app.ledger.clone();
    let ledger = app.stop();
    assert!(ledger.len() > 100 && ledger.iter().all(|entry| entry.process == 7));
    assert!(!path.exists(), "it cleans up");
}

async fn obey(order: &str) {
    let words: Vec<&str> = order.splitn(6, ' ').collect();
    let [process, url, per_s, burst, version, path] = words[..] else {
        panic!("not an order: {order}");
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let quota = match number(per_s) {
        0 => TokenBucket::without_refill(number(burst)),
        per_s => TokenBucket::per_second(per_s).burst(number(burst)),
    };
    let store = rig::builder()
        .timeout(rig::patience())
        .prefix(version)
        .connect(url);
    let limiter = rig::limiter(store.expect("a store"), quota);
    let recorder = Recorder::new(process.parse().expect("a number"));
    let mut end = signal(SignalKind::terminate()).expect("a signal");
    println!("{READY}");
    let load = Load::OF_ONE_IN_THREE;
    load.run(&limiter, &recorder, end.recv()).await;
    ledger::write(path.as_ref(), &recorder.ledger());
}
