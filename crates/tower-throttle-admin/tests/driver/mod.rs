//! A tab of a headless Chromium, driven through WebDriver. The calls block.

mod command;
mod driver;
mod focus;
pub(crate) mod picture;

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use fantoccini::{
    Client, ClientBuilder,
    actions::{InputSource, KeyAction, KeyActions},
    elements::Element,
    error::CmdError,
};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use self::{command::Command, driver::Driver};
use crate::support::DEADLINE;

const OPTIONS: &str = "--headless=new --no-sandbox --disable-gpu --disable-quic --disable-sync \
    --disable-dev-shm-usage --disable-background-networking --disable-component-update \
    --hide-scrollbars --no-first-run --remote-debugging-pipe";
/// How long a browser may take on a machine that also compiles or runs other tests: it has many
/// processes.
const PATIENCE: Duration = DEADLINE.saturating_mul(4);
/// Collects what each page violates of its content security policy.
const COLLECTOR: &str = "globalThis.cspViolations = [];
    addEventListener('securitypolicyviolation', (event) => globalThis.cspViolations.push(
      `${event.effectiveDirective} blocked ${event.blockedURI || 'inline'} ${event.sample}`));";

pub(crate) const WIDE: (u32, u32) = (1440, 900);

/// A browser process with a profile and one window of its own. It ends when dropped.
struct Browser {
    runtime: Runtime,
    client: Client,
    folder: PathBuf,
}

impl Browser {
    fn start(driver: &Driver) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-throttle-browser-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a temporary folder");
        let mut options: Vec<_> = OPTIONS.split_whitespace().map(str::to_owned).collect();
        options.push(format!("--user-data-dir={}", folder.display()));
        let capabilities = json!({
            "goog:chromeOptions": { "binary": driver.program, "args": options },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(capabilities) = capabilities else {
            unreachable!("it is written as an object");
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime.block_on(async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            let connecting = builder.capabilities(capabilities).connect(&driver.url);
            timeout(PATIENCE, connecting).await
        });
        Self {
            runtime,
            client: client.expect("a session in time").expect("a session"),
            folder,
        }
    }

    /// Waits for a result, for at most [`PATIENCE`]. Returns `None` if there is none.
    fn wait<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let waiting = async { timeout(PATIENCE, future).await };
        self.runtime.block_on(waiting).ok()
    }

    /// Returns whether the browser answers.
    fn answers(&self) -> bool {
        let body = json!({ "cmd": "Runtime.evaluate", "params": { "expression": "0" } });
        let path = "goog/cdp/execute";
        let answer = self.client.issue_cmd(Command { path, body });
        matches!(self.wait(answer), Some(Ok(_)))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.wait(self.client.clone().close());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An empty window of a browser of its own.
pub(crate) struct Tab {
    browser: Browser,
    problems: Vec<String>,
    /// It ends after its browsers.
    _driver: Arc<Driver>,
}

impl Tab {
    /// Opens an empty tab in a wide window. `None` without a browser; see [`Driver::shared`].
    pub(crate) fn open() -> Option<Self> {
        let driver = Driver::shared()?;
        // Rarely, a browser that has just started answers nothing.
        let mut starts = (0..3).map(|_| Browser::start(&driver));
        let started = starts.find(Browser::answers);
        let tab = Self {
            browser: started.expect("a browser that answers"),
            problems: Vec::new(),
            _driver: driver,
        };
        tab.resize(WIDE.0, WIDE.1);
        let collector = json!({ "source": COLLECTOR });
        tab.call("Page.addScriptToEvaluateOnNewDocument", &collector);
        Some(tab)
    }

    fn client(&self) -> &Client {
        &self.browser.client
    }

    #[track_caller]
    fn run<T>(&self, what: &str, future: impl Future<Output = Result<T, CmdError>>) -> T {
        match self.browser.wait(future) {
            Some(Ok(value)) => value,
            Some(Err(error)) => panic!("{what}: {error}"),
            None => panic!("{what}: the browser did not answer in time"),
        }
    }

    #[track_caller]
    fn post(&self, path: &'static str, body: Value) -> Value {
        let what = format!("{path} {body}");
        self.run(&what, self.client().issue_cmd(Command { path, body }))
    }

    /// Calls a method of the DevTools protocol and returns its result.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, params: &Value) -> Value {
        let body = json!({ "cmd": method, "params": params });
        self.post("goog/cdp/execute", body)
    }

    /// Gives the page this size, in CSS pixels.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Prefers a color scheme, `light` or `dark`, as the user's system does.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        let media = json!({ "features": [feature] });
        self.call("Emulation.setEmulatedMedia", &media);
    }

    /// Runs no scripts of the pages from now on.
    pub(crate) fn disable_scripts(&self) {
        let yes = json!({ "value": true });
        self.call("Emulation.setScriptExecutionDisabled", &yes);
    }

    /// Loads a page and waits until it is complete.
    #[track_caller]
    pub(crate) fn navigate(&mut self, url: &str) {
        self.collect_problems();
        self.run(url, self.client().goto(url));
    }

    /// Loads the page anew.
    #[track_caller]
    pub(crate) fn reload(&mut self) {
        self.collect_problems();
        self.run("reload", self.client().refresh());
    }

    /// Evaluates an expression in the page. Waits for a promise.
    #[track_caller]
    pub(crate) fn evaluate(&self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let evaluated = self.call("Runtime.evaluate", &params);
        let error = &evaluated["exceptionDetails"];
        assert_eq!(error, &Value::Null, "{expression}");
        evaluated["result"]["value"].clone()
    }

    /// Asserts the value of an expression.
    #[track_caller]
    pub(crate) fn assert_is(&self, expression: &str, expected: impl Into<Value>) {
        assert_eq!(self.evaluate(expression), expected.into(), "{expression}");
    }

    /// Evaluates an expression that is a text.
    #[track_caller]
    pub(crate) fn text(&self, expression: &str) -> String {
        let value = self.evaluate(expression);
        let text = value.as_str().map(str::to_owned);
        text.unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// Evaluates an expression until it is true, for at most [`PATIENCE`].
    #[track_caller]
    pub(crate) fn wait_until(&self, expression: &str) {
        let started = Instant::now();
        while self.evaluate(expression) != true {
            if started.elapsed() > PATIENCE {
                let page = self.evaluate("document.body.innerText");
                let page = page.as_str().unwrap_or_default();
                panic!("never true: {expression}\non this page:\n{page}");
            }
        }
    }

    #[track_caller]
    fn find(&self, expression: &str) -> Element {
        let script = format!("return {expression}");
        let found = self.run(expression, self.client().execute(&script, vec![]));
        let id = found.as_object();
        let id = id.and_then(|found| found.values().next()?.as_str());
        let id = id.unwrap_or_else(|| panic!("{expression} is {found}, not an element"));
        Element::from_element_id(self.client().clone(), id.to_owned().into())
    }

    /// Clicks the middle of the element that `expression` returns, which must be visible there.
    /// Scrolls to it if need be, and waits for the page that this loads.
    #[track_caller]
    pub(crate) fn click(&self, expression: &str) {
        self.run(expression, self.find(expression).click());
    }

    /// Selects all of a field and inserts this text.
    #[track_caller]
    pub(crate) fn fill(&self, expression: &str, text: &str) {
        let select = format!("(({expression}).focus(), ({expression}).select())");
        self.evaluate(&select);
        self.call("Input.insertText", &json!({ "text": text }));
        let filled = self.evaluate(&format!("({expression}).value"));
        assert_eq!(filled, text, "{expression}");
    }

    /// Presses and releases a key, as WebDriver names it.
    #[track_caller]
    pub(crate) fn press(&self, key: char) {
        let keys = KeyActions::new("keyboard".to_owned())
            .then(KeyAction::Down { value: key })
            .then(KeyAction::Up { value: key });
        self.run("a key", self.client().perform_actions(keys));
    }

    /// Returns the picture of the visible part of the page, a PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        self.run("a screenshot", self.client().screenshot())
    }

    /// Returns how many pixels the page is wider than the window.
    pub(crate) fn overflow(&self) -> i64 {
        let overflow = self.evaluate("document.documentElement.scrollWidth - innerWidth");
        overflow.as_i64().expect("a number")
    }

    /// Returns what no page should cause: exceptions that no script caught, errors and warnings
    /// on the console, violations of a content security policy, and requests that failed.
    pub(crate) fn problems(&mut self) -> &[String] {
        self.collect_problems();
        &self.problems
    }

    /// Forgets the problems so far that contain this text.
    pub(crate) fn expect_problem(&mut self, text: &str) {
        self.collect_problems();
        let count = self.problems.len();
        self.problems.retain(|problem| !problem.contains(text));
        let is_so = self.problems.len() < count;
        assert!(is_so, "no {text:?} in {:?}", self.problems);
    }

    fn collect_problems(&mut self) {
        let lines = self.post("se/log", json!({ "type": "browser" }));
        for line in lines.as_array().expect("lines") {
            if line["level"] != "INFO" && line["level"] != "DEBUG" {
                let problem = format!("{}: {}", line["source"], line["message"]);
                self.problems.push(problem);
            }
        }
        let violations = self.evaluate("globalThis.cspViolations?.splice(0) ?? []");
        for violation in violations.as_array().expect("violations") {
            self.problems.push(format!("csp: {violation}"));
        }
    }
}
