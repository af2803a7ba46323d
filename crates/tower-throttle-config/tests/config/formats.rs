//! Formats other than TOML, which serde reads.

use tower_throttle_config::Config;

#[test]
fn json_is_read_and_its_mistakes_have_paths() {
    let text = r#"{
        "version": 1,
        "policy": [
            { "name": "burst", "quota": "10 per second", "cost": 18446744073709551615 },
            { "name": "day", "quota": "1000 per day", "key": ["header:x-api-key", "peer"] }
        ]
    }"#;
    let config: Config = serde_json::from_str(text).expect("limits");
    assert_eq!(config.path(), None);

    let text = r#"{
        "version": 1,
        "policy": [{ "name": "burst", "qouta": "10 per second", "shared": null, "cost": 1.5 }],
        "policy": [],
        "peer": { "ipv6_prefix": 64, "ipv6_prefix": 56 }
    }"#;
    let error = serde_json::from_str::<Config>(text).expect_err("mistakes");
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            r#""policy" is there twice; keep one (duplicate-field)"#,
            r#"policy "burst": unknown field "qouta"; did you mean "quota"? (unknown-field)"#,
            r#"policy "burst".shared: no value; write `true` or `false`, or leave the field out (wrong-type)"#,
            r#"policy "burst".cost: expected a whole number or a table, found a number with a fraction (wrong-type)"#,
            r#"policy "burst": the field "quota" is missing; add it: quota = a quota such as "10 per second, burst 20" or a table (missing-field)"#,
            r#"policy: no policy; add at least one with `[[policy]]` (no-policies)"#,
            r#"peer: "ipv6_prefix" is there twice; keep one (duplicate-field)"#,
        ]
    );
}

#[test]
fn what_is_too_deep_is_an_error_in_json_as_well() {
    let text = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    let error = serde_json::from_str::<Config>(&text).expect_err("too deep");
    assert!(
        error.to_string().contains("more than 32 levels deep"),
        "{error}"
    );
    let text = "[".repeat(1_000_000);
    serde_json::from_str::<Config>(&text).expect_err("too deep");
}

#[test]
fn no_value_of_another_type_is_a_file() {
    for text in ["1", "null", "true", "\"version = 1\"", "[]", "1.5", "-1"] {
        serde_json::from_str::<Config>(text).expect_err(text);
    }
}
