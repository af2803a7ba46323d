use super::Config;

fn problems(text: &str) -> String {
    let errors = Config::from_toml(text).expect_err("mistakes");
    errors.to_string()
}

#[test]
fn all_mistakes_are_reported_in_the_order_of_the_text() {
    let found = problems(
        r#"version = 1
[[policy]]
name = "burst"
quota = "10 per second"
cost = "2"
keys = "peer"
[[policy]]
quota = "10 per second"
mode = "shadows"
key = ["heeder:x-api-key", "peer"]
[store]
timeout = "50ms"
"#,
    );
    assert_eq!(
        found,
        r#"5:8: policy "burst".cost: expected a whole number or a table, found a text (wrong-type)
6:1: policy "burst": unknown field "keys"; did you mean "key"? (unknown-field)
7:1: policy 2: the field "name" is missing; add it: a text (missing-field)
9:8: policy 2.mode: unknown word "shadows"; did you mean "shadow"? (unknown-word)
10:8: policy 2.key[0]: unknown word "heeder:x-api-key"; did you mean "header:x-api-key"? (unknown-word)
11:1: store: one of "redis", "memory" or "reader" is missing; add it (not-exactly-one)
12:1: store: "timeout" is for "redis"; add that, or leave it out (unused-field)"#
    );
}

#[test]
fn the_file_of_the_design_is_of_the_right_form() {
    let text = include_str!("tests/design.toml");
    let config = Config::from_toml(text).expect("no mistake");
    let root = config.root();
    let policies = root.get("policy").expect("policies").items();
    assert_eq!(policies.len(), 3);
    let key = policies[0].get("key").expect("a key").items();
    let words: Vec<_> = key.iter().filter_map(|key| key.word()).collect();
    assert_eq!(words, [("header:", "x-api-key"), ("client_ip", "")]);
    let store = root.get("store").expect("a store");
    let timeout = store.get("timeout").and_then(|field| field.duration());
    assert_eq!(timeout, Some(std::time::Duration::from_millis(50)));
    let layers = root.get("layer").expect("layers");
    let names: Vec<_> = layers
        .entries()
        .map(|(name, field)| (name, field.path))
        .collect();
    assert_eq!(names, [("api", r#"layer "api""#.to_owned())]);
}
