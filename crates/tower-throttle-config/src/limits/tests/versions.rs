//! Versions that are applied, rejected and reported.

use std::time::Duration;

use super::{
    assert_rejected, assert_standing, block_on, config, deployed, limits_of, of, poll_twice,
};
use crate::{
    ReloadError,
    tests::log::{assert_one_line, logged},
};
use tower_throttle::control::Mode;

#[test]
fn each_wrong_version_is_logged_once_with_all_mistakes() {
    let (folder, limits) = deployed();
    let wrong = of(20).replace("shared = true", "shraed = true\nmode = \"shadows\"");
    let deploy = |text: &str| {
        logged(|| {
            folder.deploy(&limits, text);
            poll_twice(&limits);
        })
    };
    let log = deploy(&wrong);
    let expected = [
        "WARN tower_throttle::config: configuration rejected (",
        "unknown word \"shadows\"; did you mean \"shadow\"?",
        "\"shraed\"; did you mean \"shared\"?",
        "version 1 stays in force",
    ];
    assert_one_line(&log, &expected);
    let path = folder.path("limits.toml").display().to_string();
    assert_eq!(log[0].matches(&path).count(), 2, "{log:?}");
    let since = limits.status().rejected.expect("rejected").since;

    // Wrong in another way: it has been wrong since then.
    assert_eq!(deploy("version = 2").len(), 1);
    assert_eq!(limits.status().rejected.expect("rejected").since, since);

    let log = deploy(&of(20));
    let applied = "configuration version 2 applied (policy \"burst\": kept)";
    assert_one_line(&log, &["INFO tower_throttle::config: ", applied]);
    // The numbers of one policy have changed. That is not a name with two quotas.
    assert_standing(&limits, (2, false, 20));
}

#[test]
fn the_store_cannot_change() {
    let (folder, limits) = deployed();
    let other = format!("{}[store]\ncapacity = 5000\nmemory = true\n", of(20));
    let log = logged(|| folder.deploy(&limits, &other));
    // A process can start with this file.
    let expected = "; version 1 stays in force, until the process restarts";
    assert_one_line(&log, &[expected]);
    assert_standing(&limits, (1, true, 10));
    let expected = "store: it cannot change while the process runs; restart it, or change it back (not-reloadable)";
    assert_rejected(&limits, expected);
}

#[test]
fn wide_ranges_of_trusted_proxies_are_logged_once_when_limits_are_built() {
    let trusting =
        |ranges: &str, limit| format!("{}[client_ip]\ntrusted = [{ranges}]\n", of(limit));
    let narrow = r#""10.0.0.0/9", "192.0.2.7", "2001:db8::/33", "loopback", "unix:""#;
    let log = logged(|| drop(limits_of(&trusting(narrow, 10))));
    assert_eq!(log, [""; 0]);
    let wide = r#""10.0.0.0/8", "2001:db8::/32", "uniquelocal""#;
    let log = logged(|| {
        let limits = limits_of(&trusting(wide, 10));
        let next = config(&trusting(wide, 20));
        limits.replace(next).expect("right");
    });
    let expected = [
        "\"10.0.0.0/8\" is very wide",
        "\"2001:db8::/32\" is very wide",
        "\"uniquelocal\" is very wide",
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
        let expected = r#"policy "burst": kept; quota: "10 per day" -> "20 per day""#;
        assert_eq!(changes.to_string(), expected);
        folder.write("limits.toml", "version = 1\n");
        for _ in 0..2 {
            let error = limits.reload().await.expect_err("no policy");
            assert!(matches!(&error, ReloadError::Rejected(_)), "{error}");
        }
    });
    assert_standing(&limits, (2, true, 20));
    // What was taken by hand is not taken again.
    folder.deploy(&limits, &of(20));
    assert_standing(&limits, (2, false, 20));
}

#[test]
fn a_reload_needs_a_file_and_a_runtime() {
    let limits = limits_of(&of(10));
    let (_folder, of_file) = deployed();
    let watched = of_file.watch(Duration::ZERO);
    assert_eq!(watched, Err(ReloadError::NoRuntime));
    block_on(async {
        assert_eq!(limits.reload().await, Err(ReloadError::NoFile));
        assert_eq!(limits.watch(Duration::ZERO), Err(ReloadError::NoFile));
    });
    let changes = limits.replace(config(&of(20)));
    assert!(!changes.expect("right").is_empty());
    assert_standing(&limits, (2, false, 20));
}

#[test]
fn an_entry_that_no_longer_fits_after_a_reload_is_reported() {
    let (folder, limits) = deployed();
    block_on(async {
        let control = limits.control().expect("that of the memory store");
        let shadow = control.set_mode("burst", Mode::Shadow);
        shadow.await.expect("it is made");
        assert_eq!(control.status().problem, None);
        let permits = of(10).replace("10 per day", "10 at once");
        folder.deploy(&limits, &permits);
        let problem = control.status().problem.expect("permits have no shadow");
        assert!(problem.starts_with("layer default: "), "{problem}");
        folder.deploy(&limits, &of(10));
        assert_eq!(control.status().problem, None);
        let changes = limits.replace(config(&permits));
        assert!(!changes.expect("right").is_empty());
        assert!(control.status().problem.is_some());
    });
}
