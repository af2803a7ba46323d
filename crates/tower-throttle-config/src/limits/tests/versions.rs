//! Versions that are applied, rejected and reported.

use std::time::Duration;

use super::{assert_rejected, block_on, deployed, of, poll_twice, standing};
use crate::tests::log::Log;
use crate::{Config, ReloadError};
use tower_throttle::control::Mode;

#[test]
fn each_wrong_version_is_logged_once_with_all_mistakes() {
    let (folder, limits) = deployed();
    let wrong = of(20).replace("shared = true", "shraed = true\nmode = \"shadows\"");
    let log = Log::of(|| {
        folder.write("limits.toml", &wrong);
        poll_twice(&limits);
        poll_twice(&limits);
    });
    let [line] = &log[..] else {
        panic!("{log:?}");
    };
    let path = folder.path("limits.toml");
    for part in [
        "WARN tower_throttle::config: configuration rejected (",
        "unknown word \"shadows\"; did you mean \"shadow\"?",
        "\"shraed\"; did you mean \"shared\"?",
        "version 1 stays in force",
    ] {
        assert!(line.contains(part), "{line}");
    }
    let named = line.matches(&path.display().to_string()).count();
    assert_eq!(named, 2, "{line}");
    let since = limits.status().rejected.expect("rejected").since;

    // Wrong in another way: it has been wrong since then.
    let log = Log::of(|| {
        folder.write("limits.toml", "version = 2");
        poll_twice(&limits);
    });
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!(limits.status().rejected.expect("rejected").since, since);

    let log = Log::of(|| {
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
    let log = Log::of(|| poll_twice(&limits));
    // A process can start with this file.
    let expected = "; version 1 stays in force, until the process restarts";
    assert!(log.len() == 1 && log[0].contains(expected), "{log:?}");
    assert_eq!(standing(&limits), (1, true, 10));
    let expected = "store: it cannot change while the process runs; restart it, or change it back (not-reloadable)";
    assert_rejected(&limits, expected);
}

#[test]
fn wide_ranges_of_trusted_proxies_are_logged_once_when_limits_are_built() {
    let trusting =
        |ranges: &str, limit| format!("{}[client_ip]\ntrusted = [{ranges}]\n", of(limit));
    let build = |ranges| {
        let config = Config::from_toml(&trusting(ranges, 10)).expect("a text");
        config.build().expect("limits")
    };
    let narrow = r#""10.0.0.0/9", "192.0.2.7", "2001:db8::/33""#;
    assert_eq!(Log::of(|| drop(build(narrow))), [""; 0]);
    let wide = r#""10.0.0.0/8", "2001:db8::/32""#;
    let log = Log::of(|| {
        let limits = build(wide);
        let next = Config::from_toml(&trusting(wide, 20)).expect("a text");
        limits.replace(next).expect("right");
    });
    let expected = [
        "\"10.0.0.0/8\" is very wide",
        "\"2001:db8::/32\" is very wide",
        "applied",
    ];
    assert_eq!(log.len(), expected.len(), "{log:?}");
    for (line, expected) in log.iter().zip(expected) {
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn a_reload_takes_a_file_at_once() {
    let (folder, limits) = deployed();
    block_on(async {
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
    block_on(async {
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
    block_on(async {
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
