//! What the demo logs.

use std::{io::Read, process::Stdio};

use crate::process::{Demo, demo};
use crate::support::eventually;

#[test]
fn denials_are_logged_where_rust_log_asks_for_them() {
    for (wanted, expected) in [
        ("tower_throttle=debug", true),
        ("info,tower_throttle::denied=debug", true),
        ("tower_throttle::store=debug", false),
        ("info", false),
    ] {
        let mut command = demo();
        let mut demo = Demo::run(command.env("RUST_LOG", wanted).stderr(Stdio::piped()));
        let mut stderr = demo.child.stderr.take().expect("its standard error");
        eventually("a denial", || {
            demo.get("/api/token-bucket", "logged").status == 429
        });
        assert!(demo.terminate().success());
        let mut lines = String::new();
        stderr.read_to_string(&mut lines).expect("text");
        let is_logged = lines.contains("tower_throttle::denied");
        assert_eq!(is_logged, expected, "{wanted}: {lines}");
    }
}
