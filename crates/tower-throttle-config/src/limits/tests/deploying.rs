//! Files that change in every way in which files are deployed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::{Folder, assert_rejected, assert_standing, deployed, of, poll_twice};
use crate::MAX_BYTES;

#[test]
fn a_file_that_is_moved_into_place_is_taken_when_two_readings_agree() {
    let (folder, limits) = deployed();
    poll_twice(&limits);
    assert_standing(&limits, (1, false, 10));
    folder.write("next", &of(20));
    fs::rename(folder.path("next"), folder.path("limits.toml")).expect("moved");
    for (version, limit) in [(1, 10), (2, 20)] {
        limits.shared.poll();
        assert_standing(&limits, (version, false, limit));
    }
}

#[test]
fn a_file_that_is_written_in_place_is_taken_also_with_its_old_length_and_time() {
    let (folder, limits) = deployed();
    let path = folder.path("limits.toml");
    let time = fs::metadata(&path).and_then(|data| data.modified());
    folder.write("limits.toml", &of(20));
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.set_modified(time.expect("a time")).expect("set");
    poll_twice(&limits);
    assert_standing(&limits, (2, false, 20));
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
    assert_standing(&limits, (1, false, 10));
    symlink("..2", folder.path("..data_tmp")).expect("a link");
    fs::rename(folder.path("..data_tmp"), folder.path("..data")).expect("moved");
    fs::remove_dir_all(folder.path("..1")).expect("removed");
    poll_twice(&limits);
    assert_standing(&limits, (2, false, 20));
}

#[test]
fn a_file_that_cannot_be_read_changes_nothing_and_is_loud() {
    let (folder, limits) = deployed();
    let path = folder.path("limits.toml");
    fs::remove_file(&path).expect("removed");
    // It may be on its way.
    for is_rejected in [false, true] {
        limits.shared.poll();
        assert_standing(&limits, (1, is_rejected, 10));
    }
    let expected = format!("{}: cannot read the file (No such file", path.display());
    assert_rejected(&limits, &expected);
    fs::create_dir(&path).expect("a folder");
    poll_twice(&limits);
    assert_rejected(&limits, "not a regular file");
    fs::remove_dir(&path).expect("removed");
    let large = format!("{}{}", of(20), "#".repeat(MAX_BYTES));
    folder.deploy(&limits, &large);
    assert_rejected(&limits, "(file-too-large)");
    // The same content again.
    folder.deploy(&limits, &of(10));
    assert_standing(&limits, (1, false, 10));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).expect("set");
    // The superuser reads it all the same.
    let is_unreadable = fs::read(&path).is_err();
    poll_twice(&limits);
    assert_standing(&limits, (1, is_unreadable, 10));
}
