//! The file of lists, which is watched with the file that names it.

use std::{fs, os::unix::fs::symlink};

use super::{Folder, assert_rejected, assert_standing, of, poll_twice, unique};
use crate::{Limits, tests::log::logged};

fn with_lists(limit: u64) -> String {
    let keyed = "[[policy]]\nname = \"keyed\"\nquota = \"9 per day\"\nkey = \"header:x-api-key\"\n\
        on_missing_key = \"skip\"\n";
    let policies = of(limit);
    format!("{policies}{keyed}[lists]\nfile = \"lists.txt\"\n")
}

fn deployed() -> (Folder, Limits) {
    let folder = Folder::new();
    folder.write("lists.txt", "deny key keyed mallory\n");
    folder.write("limits.toml", &with_lists(10));
    let limits = folder.limits();
    poll_twice(&limits);
    (folder, limits)
}

#[test]
fn the_file_of_lists_is_watched_too() {
    let (folder, limits) = deployed();
    assert_standing(&limits, (1, false, 10));
    for (lists, is_rejected) in [("deny key keyed trudy\n", false), ("refuse trudy\n", true)] {
        folder.write("lists.txt", lists);
        poll_twice(&limits);
        assert_standing(&limits, (2, is_rejected, 10));
    }
    let lists = folder.path("lists.txt");
    fs::remove_file(&lists).expect("removed");
    poll_twice(&limits);
    assert_rejected(&limits, "lists.txt");
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

#[test]
fn lists_that_change_at_each_reading_keep_no_change_of_the_file_away() {
    let (folder, limits) = deployed();
    folder.write("limits.toml", &with_lists(20));
    let warnings = |times: usize| {
        let mut log = logged(|| {
            for _ in 0..times {
                folder.write("lists.txt", &format!("deny key keyed {}\n", unique()));
                limits.shared.poll();
            }
        });
        log.retain(|line| line.contains("WARN"));
        log
    };
    assert_eq!(warnings(5), [""; 0]);
    assert_standing(&limits, (1, false, 10));
    let [warning] = &warnings(20)[..] else {
        panic!("one warning");
    };
    let expected = "the file of lists changes each time it is read";
    assert!(warning.contains(expected), "{warning}");
    let version = limits.status().version;
    assert_standing(&limits, (version, false, 20));
    // They have settled, and begin again.
    poll_twice(&limits);
    assert_eq!(warnings(20).len(), 1);
}
