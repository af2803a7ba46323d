//! The admin page of the demo.

use serde_json::json;

use crate::{
    config::FILE,
    process::{Answer, Demo, change, new_caller, read, send_with},
    support::{RedisServer, eventually},
};

fn get(demo: &Demo, path: &str, fields: &[(&str, &str)]) -> Answer {
    read(send_with(demo.address, "GET", path, fields, ""))
}

#[test]
fn the_admin_page_shows_all_limits_to_this_machine() {
    for options in [&[][..], &["--config", FILE]] {
        let demo = &Demo::start(options);
        let status = get(demo, "/admin/api/v1/status", &[]);
        assert_eq!(status.status, 200, "{status:?}");
        let status = status.json();
        assert_eq!(status["changes"], true);
        assert_eq!(status["limiters"].as_array().map(Vec::len), Some(12));
        assert!(status["control"].is_object(), "{status}");
        for field in [
            ("host", "attacker.example"),
            ("x-forwarded-for", "203.0.113.1"),
        ] {
            let answer = get(demo, "/admin/api/v1/status", &[field]);
            assert_eq!(answer.status, 403, "{field:?}");
        }
    }
}

#[test]
fn an_operator_resets_and_bans_a_visitor() {
    let redis = RedisServer::start();
    for demo in &[Demo::slow(None), Demo::slow(Some(&redis))] {
        let visitor = new_caller();
        let ask = || demo.get("/api/sliding-log", &visitor).status;
        eventually("a denial", || ask() == 429);
        let caller = json!({ "caller": visitor, "policy": "log" });
        change(demo, "reset", &caller);
        assert_eq!(ask(), 200);

        let mut ban = caller.clone();
        ban["for"] = json!("1h");
        change(demo, "ban", &ban);
        let banned = demo.get("/api/sliding-log", &visitor);
        assert_eq!(banned.status, 429);
        let wait_s = banned.header("retry-after").expect("a wait");
        assert!(wait_s.parse::<u64>().expect("a number") > 3_500);
        // The picture shows it.
        let look = demo.get("/api/remaining", &visitor).json();
        let policies = look["policies"].as_array().expect("policies");
        let is_banned = |name: &str| {
            let mut policies = policies.iter();
            let found = policies.find(|policy| policy["name"] == name);
            found.expect("it")["banned"] == true
        };
        assert!(is_banned("log") && !is_banned("bucket"));
        change(demo, "unban", &caller);
        assert_ne!(demo.get("/api/remaining", &visitor).left("log"), 0);
    }
}
