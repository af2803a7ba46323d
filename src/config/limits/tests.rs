//! Files that change in every way in which files are deployed. A poll is called where a watched file
//! would be read.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use tower::{Layer, ServiceExt};

use super::super::{Config, Limits, MAX_BYTES, ReloadError};
use crate::{
    ConfigError, Key, RequestHead,
    config::Readers,
    control::Mode,
    key::{KeyError, KeyExtractor},
    util::{lock::lock, random::random_between},
};

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!(
            "tower-throttle-{}-{}",
            std::process::id(),
            random_between(0.0, 1e9)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    /// Builds the limits of `limits.toml`.
    fn limits(&self) -> Limits {
        let config = Config::from_path(self.path("limits.toml")).expect("a file");
        config.build().expect("limits")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn of(limit: u64) -> String {
    format!(
        "version = 1\n[[policy]]\nname = \"burst\"\nquota = \"{limit} per day\"\nshared = true\n"
    )
}

/// A folder with limits of 10 a day.
fn deployed() -> (Folder, Limits) {
    let folder = Folder::new();
    folder.write("limits.toml", &of(10));
    let limits = folder.limits();
    (folder, limits)
}

/// Reads a watched file as often as two intervals do.
fn poll_twice(limits: &Limits) {
    limits.shared.poll();
    limits.shared.poll();
}

/// Returns the limit that clients read.
fn limit(limits: &Limits) -> u64 {
    let layer = limits.layer("default").expect("a layer");
    let service = layer.layer(tower::service_fn(async |_: http::Request<()>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    }));
    let answer = service.oneshot(http::Request::new(()));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let answer = runtime
        .expect("a runtime")
        .block_on(answer)
        .expect("infallible");
    let field = answer.headers()["ratelimit-policy"]
        .to_str()
        .expect("a text");
    let (_, rest) = field.split_once("q=").expect("a quota");
    let digits = rest.split(';').next().expect("a number");
    digits.parse().expect("a number")
}

/// Returns the version, whether the file is rejected, and the limit.
fn standing(limits: &Limits) -> (u64, bool, u64) {
    let status = limits.status();
    (status.version, status.rejected.is_some(), limit(limits))
}

fn rejected(limits: &Limits) -> String {
    let rejected = limits.status().rejected.expect("rejected");
    rejected.errors.to_string()
}

#[test]
fn a_file_that_is_moved_into_place_is_taken() {
    let (folder, limits) = deployed();
    poll_twice(&limits);
    assert_eq!(standing(&limits), (1, false, 10));
    folder.write("next", &of(20));
    fs::rename(folder.path("next"), folder.path("limits.toml")).expect("moved");
    limits.shared.poll();
    assert_eq!(standing(&limits), (1, false, 10));
    limits.shared.poll();
    assert_eq!(standing(&limits), (2, false, 20));
}

#[test]
fn a_file_that_is_written_in_place_is_taken_also_with_its_old_length_and_time() {
    let (folder, limits) = deployed();
    let path = folder.path("limits.toml");
    let time = fs::metadata(&path)
        .and_then(|data| data.modified())
        .expect("a time");
    folder.write("limits.toml", &of(20));
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.set_modified(time).expect("set");
    poll_twice(&limits);
    assert_eq!(standing(&limits), (2, false, 20));
}

/// As Kubernetes changes a ConfigMap: only the link in the middle changes.
#[test]
fn a_link_that_points_elsewhere_is_followed() {
    let folder = Folder::new();
    for (version, limit) in [("..1", 10), ("..2", 20)] {
        fs::create_dir(folder.path(version)).expect("a folder");
        folder.write(&format!("{version}/limits.toml"), &of(limit));
    }
    symlink("..1", folder.path("..data")).expect("a link");
    symlink("..data/limits.toml", folder.path("limits.toml")).expect("a link");
    let limits = folder.limits();
    poll_twice(&limits);
    assert_eq!(standing(&limits), (1, false, 10));
    symlink("..2", folder.path("..data_tmp")).expect("a link");
    fs::rename(folder.path("..data_tmp"), folder.path("..data")).expect("moved");
    fs::remove_dir_all(folder.path("..1")).expect("removed");
    poll_twice(&limits);
    assert_eq!(standing(&limits), (2, false, 20));
}

#[test]
fn a_file_that_is_being_written_is_not_taken() {
    let (folder, limits) = deployed();
    let whole = format!("{}[layer.default]\npolicies = [\"burst\"]\n", of(20));
    // Each part is a right file by itself.
    let parts = [&of(20)[..], &whole[..], &whole[..]];
    for (index, part) in parts.into_iter().enumerate() {
        assert_eq!(standing(&limits), (1, false, 10), "part {index}");
        folder.write("limits.toml", part);
        limits.shared.poll();
    }
    assert_eq!(standing(&limits), (2, false, 20));
    let changes = limits.status().changes;
    assert!(
        changes.to_string().contains("layer \"default\""),
        "{changes}"
    );
}

#[test]
fn a_file_that_is_gone_changes_nothing_and_is_loud() {
    let (folder, limits) = deployed();
    let path = folder.path("limits.toml");
    fs::remove_file(&path).expect("removed");
    limits.shared.poll();
    // It may be on its way.
    assert_eq!(standing(&limits), (1, false, 10));
    limits.shared.poll();
    assert_eq!(standing(&limits), (1, true, 10));
    let expected = format!("{}: cannot read the file (No such file", path.display());
    assert!(
        rejected(&limits).starts_with(&expected),
        "{}",
        rejected(&limits)
    );
    // The same content again.
    folder.write("limits.toml", &of(10));
    poll_twice(&limits);
    assert_eq!(standing(&limits), (1, false, 10));
}

#[test]
fn a_file_that_must_not_be_read_changes_nothing() {
    let (folder, limits) = deployed();
    let path = folder.path("limits.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).expect("set");
    // The superuser reads it all the same.
    let is_unreadable = fs::read(&path).is_err();
    poll_twice(&limits);
    assert_eq!(standing(&limits), (1, is_unreadable, 10));
}

#[test]
fn what_is_no_file_is_rejected() {
    let (folder, limits) = deployed();
    let path = folder.path("limits.toml");
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder");
    poll_twice(&limits);
    assert_eq!(standing(&limits), (1, true, 10));
    assert!(
        rejected(&limits).contains("not a regular file"),
        "{}",
        rejected(&limits)
    );
}

#[test]
fn a_file_that_is_too_large_is_rejected() {
    let (folder, limits) = deployed();
    folder.write(
        "limits.toml",
        &format!("{}{}", of(20), "#".repeat(MAX_BYTES)),
    );
    poll_twice(&limits);
    assert_eq!(standing(&limits), (1, true, 10));
    assert!(
        rejected(&limits).ends_with("(file-too-large)"),
        "{}",
        rejected(&limits)
    );
}

#[test]
fn the_file_of_lists_is_watched_too() {
    let folder = Folder::new();
    folder.write("lists.txt", "deny key mallory\n");
    folder.write(
        "limits.toml",
        &format!("{}[lists]\nfile = \"lists.txt\"\n", of(10)),
    );
    let limits = folder.limits();
    poll_twice(&limits);
    assert_eq!(standing(&limits).0, 1);
    folder.write("lists.txt", "deny key trudy\n");
    poll_twice(&limits);
    assert_eq!(standing(&limits), (2, false, 10));
    folder.write("lists.txt", "refuse trudy\n");
    poll_twice(&limits);
    assert_eq!(standing(&limits), (2, true, 10));
    fs::remove_file(folder.path("lists.txt")).expect("removed");
    poll_twice(&limits);
    assert!(
        rejected(&limits).contains("lists.txt"),
        "{}",
        rejected(&limits)
    );
}

/// What this thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tracing")]
fn logged(run: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let writer = log.clone();
    // With one subscriber alone, an event that another thread logs first is off in all threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(lock(&log.0).clone()).expect("a text");
    text.lines().map(str::to_owned).collect()
}

#[cfg(feature = "tracing")]
#[test]
fn each_wrong_version_is_logged_once_with_all_mistakes() {
    let (folder, limits) = deployed();
    let wrong = of(20).replace("shared = true", "shraed = true\nmode = \"shadows\"");
    let log = logged(|| {
        folder.write("limits.toml", &wrong);
        poll_twice(&limits);
        poll_twice(&limits);
    });
    let [line] = &log[..] else {
        panic!("{log:?}");
    };
    let path = folder.path("limits.toml");
    assert!(
        line.contains("WARN tower_throttle::config: configuration rejected ("),
        "{line}"
    );
    for part in [
        "unknown word \"shadows\"; did you mean \"shadow\"?",
        "\"shraed\"; did you mean \"shared\"?",
        "version 1 stays in force",
    ] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(
        line.matches(&path.display().to_string()).count(),
        2,
        "{line}"
    );
    let since = limits.status().rejected.expect("rejected").since;

    // Wrong in another way: it has been wrong since then.
    let log = logged(|| {
        folder.write("limits.toml", "version = 2");
        poll_twice(&limits);
    });
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!(limits.status().rejected.expect("rejected").since, since);

    let log = logged(|| {
        folder.write("limits.toml", &of(20));
        poll_twice(&limits);
        poll_twice(&limits);
    });
    let [line] = &log[..] else {
        panic!("{log:?}");
    };
    let expected =
        "INFO tower_throttle::config: configuration version 2 applied (policy \"burst\": kept)";
    assert!(line.contains(expected), "{line}");
    // The numbers of one policy have changed. That is not a name with two quotas.
    assert_eq!(standing(&limits), (2, false, 20));
}

#[test]
fn the_store_cannot_change() {
    let (folder, limits) = deployed();
    folder.write(
        "limits.toml",
        &format!("{}[store]\ncapacity = 5000\nmemory = true\n", of(20)),
    );
    poll_twice(&limits);
    assert_eq!(standing(&limits), (1, true, 10));
    let expected = "store: it cannot change while the process runs; restart it, or change it back (not-reloadable)";
    assert!(
        rejected(&limits).ends_with(expected),
        "{}",
        rejected(&limits)
    );
}

#[test]
fn a_reload_takes_a_file_at_once() {
    let (folder, limits) = deployed();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        assert!(limits.reload().await.expect("a file").is_empty());
        folder.write("limits.toml", &of(20));
        let changes = limits.reload().await.expect("a file");
        assert_eq!(
            changes.to_string(),
            r#"policy "burst": kept; quota: "10 per day" -> "20 per day""#
        );
        folder.write("limits.toml", "version = 1\n");
        for _ in 0..2 {
            let error = limits.reload().await.expect_err("no policy");
            assert!(matches!(&error, ReloadError::Rejected(_)), "{error}");
        }
    });
    assert_eq!(standing(&limits), (2, true, 20));
    // What was taken by hand is not taken again.
    folder.write("limits.toml", &of(20));
    poll_twice(&limits);
    assert_eq!(standing(&limits), (2, false, 20));
}

#[test]
fn a_reload_needs_a_file_and_a_runtime() {
    let config = Config::from_toml(&of(10)).expect("a text");
    let limits = config.build().expect("limits");
    let no_runtime = Err(ReloadError::NoRuntime);
    let (_folder, of_file) = deployed();
    assert_eq!(of_file.watch(Duration::ZERO), no_runtime);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(async {
        assert_eq!(limits.reload().await, Err(ReloadError::NoFile));
        assert_eq!(limits.watch(Duration::ZERO), Err(ReloadError::NoFile));
    });
    let changes = limits.replace(Config::from_toml(&of(20)).expect("a text"));
    assert!(!changes.expect("right").is_empty());
    assert_eq!(standing(&limits), (2, false, 20));
}

#[test]
fn an_entry_that_no_longer_fits_after_a_reload_is_reported() {
    let (folder, limits) = deployed();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(async {
        let control = limits.control().expect("that of the memory store");
        let shadow = control.set_mode("burst", Mode::Shadow);
        shadow.await.expect("it is made");
        assert_eq!(control.status().problem, None);
        folder.write("limits.toml", &of(10).replace("10 per day", "10 at once"));
        poll_twice(&limits);
        let problem = control.status().problem.expect("permits have no shadow");
        assert!(problem.starts_with("layer default: "), "{problem}");
        folder.write("limits.toml", &of(10));
        poll_twice(&limits);
        assert_eq!(control.status().problem, None);
        let permits = of(10).replace("10 per day", "10 at once");
        let changes = limits.replace(Config::from_toml(&permits).expect("a text"));
        assert!(!changes.expect("right").is_empty());
        assert!(control.status().problem.is_some());
    });
}

fn with_lists(limit: u64) -> String {
    format!("{}[lists]\nfile = \"lists.txt\"\n", of(limit))
}

#[cfg(feature = "tracing")]
#[test]
fn lists_that_change_at_each_reading_keep_no_change_of_the_file_away() {
    let folder = Folder::new();
    folder.write("lists.txt", "");
    folder.write("limits.toml", &with_lists(10));
    let limits = folder.limits();
    poll_twice(&limits);
    folder.write("limits.toml", &with_lists(20));
    let poll = |times: usize| {
        logged(|| {
            for _ in 0..times {
                let key = random_between(0.0, 1e9);
                folder.write("lists.txt", &format!("deny key {key}\n"));
                limits.shared.poll();
            }
        })
    };
    assert_eq!(poll(5), [""; 0]);
    assert_eq!(standing(&limits), (1, false, 10));
    let log = poll(20);
    assert_eq!(standing(&limits).2, 20);
    let warnings = log.iter().filter(|line| line.contains("WARN"));
    let warnings: Vec<_> = warnings.collect();
    let [warning] = &warnings[..] else {
        panic!("{log:?}");
    };
    assert!(
        warning.contains("the file of lists changes each time it is read"),
        "{warning}"
    );
    // They have settled, and begin again.
    poll_twice(&limits);
    let log = poll(20);
    assert!(log.iter().any(|line| line.contains("WARN")), "{log:?}");
}

#[test]
fn lists_that_are_no_file_or_too_large_are_rejected() {
    let folder = Folder::new();
    folder.write("lists.txt", "");
    folder.write("limits.toml", &with_lists(10));
    let limits = folder.limits();
    let lists = folder.path("lists.txt");
    fs::remove_file(&lists).expect("removed");
    symlink("/dev/null", &lists).expect("a link");
    poll_twice(&limits);
    let expected = "not a regular file); make it readable, or name another file (list-file)";
    assert!(
        rejected(&limits).ends_with(expected),
        "{}",
        rejected(&limits)
    );

    fs::remove_file(&lists).expect("removed");
    let large = fs::File::create(&lists).expect("a file");
    large.set_len((64 << 20) + 1).expect("a length");
    poll_twice(&limits);
    assert!(
        rejected(&limits).contains("it has more than 64 MiB"),
        "{}",
        rejected(&limits)
    );
}

/// A reader of addresses that does something when a version is checked.
struct Checked(Box<dyn Fn() + Send + Sync>);

impl KeyExtractor for Checked {
    fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(Key::from("ann"))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (self.0)();
        Ok(())
    }
}

fn checked(folder: &Folder, check: impl Fn() + Send + Sync + 'static) -> Limits {
    folder.write("limits.toml", &read_by(10));
    let readers = Readers::new().key("checked", Checked(Box::new(check)));
    let config = Config::from_path(folder.path("limits.toml")).expect("a file");
    config.readers(readers).build().expect("limits")
}

fn read_by(limit: u64) -> String {
    of(limit).replace("shared = true", "key = \"reader:checked\"")
}

#[test]
fn a_panic_while_a_version_is_checked_rejects_it() {
    let folder = Folder::new();
    let panics = Arc::new(AtomicBool::new(false));
    let check = Arc::clone(&panics);
    let limits = checked(&folder, move || {
        assert!(!check.load(Ordering::Relaxed), "no plan");
    });
    panics.store(true, Ordering::Relaxed);
    folder.write("limits.toml", &read_by(20));
    poll_twice(&limits);
    let expected =
        "code of the application panicked while this was checked: no plan (check-panicked)";
    assert!(
        rejected(&limits).ends_with(expected),
        "{}",
        rejected(&limits)
    );
    panics.store(false, Ordering::Relaxed);
    folder.write("limits.toml", &read_by(30));
    poll_twice(&limits);
    assert_eq!(standing(&limits), (2, false, 30));
}

#[test]
fn the_status_does_not_wait_for_a_version_that_is_checked() {
    let folder = Folder::new();
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let (ends, waits) = (Mutex::new(ends), Arc::new(AtomicBool::new(false)));
    let check = Arc::clone(&waits);
    let limits = checked(&folder, move || {
        if check.load(Ordering::Relaxed) {
            begins.send(()).expect("a test");
            // It goes on when the other end is dropped.
            let _ = lock(&ends).recv();
        }
    });
    waits.store(true, Ordering::Relaxed);
    folder.write("limits.toml", &read_by(20));
    let polling = limits.clone();
    let polled = std::thread::spawn(move || poll_twice(&polling));
    begun.recv().expect("it is checked");
    let asking = limits.clone();
    let (answer, answered) = mpsc::channel();
    let asked = std::thread::spawn(move || answer.send(asking.status().version));
    let version = answered.recv_timeout(Duration::from_secs(60));
    drop(end);
    polled.join().expect("no panic");
    asked.join().expect("no panic").expect("an answer");
    assert_eq!((version, standing(&limits)), (Ok(1), (2, false, 20)));
}
