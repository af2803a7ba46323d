//! The file of lists, which is watched with the file that names it.

use std::{fs, os::unix::fs::symlink};

use super::{Folder, assert_rejected, of, poll_twice, standing, unique};
use crate::tests::log::Log;

fn with_lists(limit: u64) -> String {
    format!("{}[lists]\nfile = \"lists.txt\"\n", of(limit))
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
    assert_rejected(&limits, "lists.txt");
}

#[test]
fn lists_that_change_at_each_reading_keep_no_change_of_the_file_away() {
    let folder = Folder::new();
    folder.write("lists.txt", "");
    folder.write("limits.toml", &with_lists(10));
    let limits = folder.limits();
    poll_twice(&limits);
    folder.write("limits.toml", &with_lists(20));
    let poll = |times: usize| {
        Log::of(|| {
            for _ in 0..times {
                let key = unique();
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
    assert_rejected(&limits, expected);

    fs::remove_file(&lists).expect("removed");
    let large = fs::File::create(&lists).expect("a file");
    large.set_len((64 << 20) + 1).expect("a length");
    poll_twice(&limits);
    assert_rejected(&limits, "it has more than 64 MiB");
}
