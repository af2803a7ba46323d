//! What readers of the application return and the file does not know.

use super::world::World;
use crate::tests::log::{assert_one_line, logged};

#[test]
fn an_unknown_tier_is_logged_once_for_each_policy_and_not_shown() {
    let tiers = r#"{ by = "plan", tiers = { free = "2 per minute", paid = "9 per minute" }, otherwise = "free" }"#;
    for name in ["api", "jobs"] {
        let world = World::new();
        let policy = format!(r#"policy = [{{ name = "{name}", quota = {tiers} }}]"#);
        let layer = world.layer_of_file(&policy);
        let talk = |requests: &str| logged(|| drop(world.talk(&layer, requests)));
        assert_eq!(talk("GET / x-plan=paid; GET /"), [""; 0]);
        let log = talk("GET / x-plan=s3cret; GET / x-plan=s3cret; GET / x-plan=other");
        let reader = format!("the reader of policy {name:?}");
        assert_one_line(
            &log,
            &["WARN tower_throttle::wiring", &reader, "`otherwise`"],
        );
        assert!(!log[0].contains("s3cret"), "{log:?}");
    }
}
