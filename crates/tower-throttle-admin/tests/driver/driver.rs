//! The process of chromedriver, which the tests of one binary share.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Ends the driver when its standard input ends, so that it also ends with a process that is
/// killed. Ends when the driver does, so that nobody waits for the output of one that is gone.
const SCRIPT: &str = "exec 3<&0; \"$@\" </dev/null 3<&- & driver=$!; \
     { cat <&3; kill $driver; } >/dev/null 2>&1 & wait $driver";
const READY: &str = "ChromeDriver was started successfully on port ";

static SHARED: Mutex<Weak<Driver>> = Mutex::new(Weak::new());

/// A running chromedriver on a free port of the loopback. It ends, and so do its browsers, when its
/// last user drops it.
pub(super) struct Driver {
    child: Child,
    pub(super) url: String,
    pub(super) program: PathBuf,
}

impl Driver {
    /// Returns the driver that another test uses at the moment, or starts one. `None` without a
    /// browser and its driver.
    ///
    /// # Panics
    ///
    /// If one of them is missing and `TT_REQUIRE_CHROMIUM` is set, as CI sets it.
    pub(super) fn shared() -> Option<Arc<Self>> {
        let browser = find(&BROWSERS);
        let (Some(browser), Some(program)) = (browser, find(&["chromedriver"])) else {
            assert!(
                std::env::var_os("TT_REQUIRE_CHROMIUM").is_none(),
                "TT_REQUIRE_CHROMIUM is set and the PATH lacks `chromedriver` or all of \
                 {BROWSERS:?}; install `chromium` and `chromium-driver`"
            );
            return None;
        };
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = shared.upgrade().unwrap_or_else(|| {
            let driver = Arc::new(Self::start(&program, &browser));
            *shared = Arc::downgrade(&driver);
            driver
        });
        Some(driver)
    }

    /// Once, a driver ended before it had named its port.
    fn start(program: &Path, browser: &Path) -> Self {
        let mut starts = (0..3).filter_map(|_| Self::try_start(program, browser));
        starts.next().expect("chromedriver names its port")
    }

    fn try_start(program: &Path, browser: &Path) -> Option<Self> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(program)
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let output = child.stdout.take().expect("its standard output");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let port = lines.find_map(|line| line.strip_prefix(READY).map(str::to_owned));
        if port.is_none() {
            let _ = child.wait();
        }
        Some(Self {
            child,
            url: format!("http://127.0.0.1:{}", port?.trim_end_matches('.')),
            program: browser.to_owned(),
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|program| program.is_file())
}
