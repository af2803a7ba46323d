//! The README's file sends the fields that the README shows.

use super::world::World;

const FILE: &str = r#"
    [[policy]]
    name = "burst"
    quota = "10 per second, burst 20"
    key = "reader:tenant"
    [[policy]]
    name = "day"
    quota = "fixed window of 50000 per day"
    key = "reader:tenant"
    [[policy]]
    name = "everyone"
    quota = "5000 per second"
    shared = true
    [layer.default]
    on_store_failure = "share of 4"
"#;

#[test]
fn the_file_of_the_readme_sends_the_fields_of_the_readme() {
    let page = include_str!("../../../../../README.md");
    let mut lines = page.lines();
    let shown = lines.find_map(|line| line.strip_prefix("ratelimit-policy: "));
    let shown = format!("ratelimit-policy: {:?}", shown.expect("the field"));
    let world = World::new();
    let sent = world.talk(&world.layer_of_file(FILE), "GET / x-tenant=a");
    assert!(sent.contains(&shown), "{shown} is not in {sent}");
}
