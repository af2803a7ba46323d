//! A page about all of a configuration file.

use serde_json::{Value, json};
use tower_throttle_config::{Config, Limits};

use crate::operator::{Operator, parts};
use crate::support::web::{ask, get};

fn config(policies: &[(&str, &str)]) -> Config {
    let tables = policies.iter().map(|(name, quota)| {
        format!("[[policy]]\nname = {name:?}\nquota = {quota:?}\nkey = \"header:x-api-key\"\n")
    });
    let text = format!("version = 1\n{}", tables.collect::<String>());
    Config::from_toml(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn limits(policies: &[(&str, &str)]) -> Limits {
    let built = config(policies).build();
    built.unwrap_or_else(|errors| panic!("{errors}"))
}

fn names(policies: &Value) -> Vec<&str> {
    let policies = policies.as_array().expect("a list").iter();
    policies
        .filter_map(|policy| policy["name"].as_str())
        .collect()
}

#[tokio::test]
async fn each_new_version_of_a_file_is_shown() {
    let limits = limits(&[("plan", "fixed window of 2 per hour")]);
    let ann = Operator::new(&limits);
    let status = ann.get("status").await;
    assert_eq!(
        parts(&status, "config.version config.rejected"),
        json!([1, null])
    );
    assert_eq!(names(&ann.get("policies").await), ["plan"]);
    let new = config(&[
        ("plan", "fixed window of 3 per hour"),
        ("more", "5 per second"),
    ]);
    limits.replace(new).expect("it is taken");
    let status = ann.get("status").await;
    assert_eq!(status["config"]["version"], 2);
    let policies = ann.get("policies").await;
    assert_eq!(names(&policies), ["plan", "more"]);
    assert_eq!(policies[0]["quota"], "fixed window of 3 per hour");
}

/// No document has to be named.
#[tokio::test]
async fn changes_are_made_in_the_document_of_the_store_of_the_file() {
    let limits = limits(&[("plan", "fixed window of 2 per hour")]);
    let layer = limits.layer("default").expect("a layer");
    let ann = Operator::new(&limits);
    let ban = json!({ "caller": "header:x-api-key=k1", "policy": "plan", "for": "1h" });
    assert_eq!(ann.post("ban", ban).await["changed"], true);
    let status = |key: &str| ask(&layer, get([("x-api-key", key)])).status.as_u16();
    assert_eq!((status("k1"), status("k2")), (429, 200));
    let found = ann.look_up("k1").await;
    assert_eq!(found["policies"][0]["banned_by"], "operator");
    assert_eq!(limits.control().expect("a document").entries().len(), 1);
}
