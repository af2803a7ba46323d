//! A headless Chromium, driven through its debugging pipe.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::Instant,
};

use serde_json::{Value, json};

use crate::support::DEADLINE;

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const OPTIONS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --disable-sync \
    --disable-dev-shm-usage --disable-background-networking --disable-component-update \
    --no-first-run --remote-debugging-pipe";

/// Returns a browser's program, or `None` if the `PATH` has none.
///
/// # Panics
///
/// If the `PATH` has none and `TT_REQUIRE_CHROMIUM` is set, as CI sets it.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .filter(|program| program.is_file());
    let found = programs.next();
    assert!(
        found.is_some() || std::env::var_os("TT_REQUIRE_CHROMIUM").is_none(),
        "TT_REQUIRE_CHROMIUM is set and the PATH has none of {NAMES:?}; install `chromium`"
    );
    found
}

/// One tab of one browser process, which ends when dropped.
pub(crate) struct Tab {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    folder: PathBuf,
    session: Option<String>,
    last_id: u64,
    script_errors: Vec<Value>,
}

impl Tab {
    /// Opens an empty tab. `None` without a browser; see [`program`].
    pub(crate) fn open(width: u32, height: u32) -> Option<Self> {
        let mut tab = Self::start(&program()?);
        let target = tab.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = tab.call("Target.attachToTarget", &target);
        tab.session = attached["sessionId"].as_str().map(str::to_owned);
        tab.call("Runtime.enable", &json!({}));
        tab.call("Network.enable", &json!({}));
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        tab.call("Emulation.setDeviceMetricsOverride", &size);
        Some(tab)
    }

    fn start(program: &PathBuf) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-throttle-chromium-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a temporary folder");
        // Chromium reads commands from descriptor 3 and writes replies to descriptor 4.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >\"$LOG\" 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program)
            .args(OPTIONS.split(' ').filter(|option| !option.is_empty()))
            .arg(format!("--user-data-dir={}", folder.display()))
            .env("LOG", folder.join("log"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let commands = child.stdin.take().expect("its standard input");
        let replies = child.stdout.take().expect("its standard output");
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(replies).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            commands,
            messages,
            folder,
            session: None,
            last_id: 0,
            script_errors: Vec::new(),
        }
    }

    /// Calls a method of the DevTools protocol and returns its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let mut command = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let sent = write!(self.commands, "{command}\0").and_then(|()| self.commands.flush());
        sent.unwrap_or_else(|error| panic!("{method}: {error}; {}", self.log()));
        loop {
            let message = self.messages.recv_timeout(DEADLINE);
            let message =
                message.unwrap_or_else(|error| panic!("{method}: {error}; {}", self.log()));
            if message["method"] == "Runtime.exceptionThrown" {
                self.script_errors.push(message["params"].clone());
            } else if message["id"] == self.last_id {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Evaluates an expression in the page.
    #[track_caller]
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let evaluated = self.call("Runtime.evaluate", &params);
        let error = &evaluated["exceptionDetails"];
        assert_eq!(error, &Value::Null, "{expression}");
        evaluated["result"]["value"].clone()
    }

    /// Evaluates an expression until it is true, for at most [`DEADLINE`].
    #[track_caller]
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let started = Instant::now();
        while self.evaluate(expression) != true {
            if started.elapsed() > DEADLINE {
                let page = self.evaluate("document.body.innerText");
                panic!("never true: {expression}\non this page:\n{page}");
            }
        }
    }

    /// Loads a page and waits for its scripts.
    #[track_caller]
    pub(crate) fn navigate(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        self.wait_until(&format!(
            "location.href === {} && document.readyState === 'complete'",
            json!(url)
        ));
    }

    /// Clicks the middle of the element that `expression` returns.
    #[track_caller]
    pub(crate) fn click(&mut self, expression: &str) {
        let middle = self.evaluate(&format!(
            "(() => {{ const box = ({expression}).getBoundingClientRect();
               return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": middle["x"], "y": middle["y"],
                "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Returns the exceptions that no script caught.
    pub(crate) fn script_errors(&self) -> &[Value] {
        &self.script_errors
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // A browser that is killed leaves children for a moment, which write to its folder.
        let _ = write!(self.commands, "{{\"id\":0,\"method\":\"Browser.close\"}}\0");
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && started.elapsed() < DEADLINE {
            thread::yield_now();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
