//! A page about all of a configuration file.

use serde_json::json;
use tower_throttle_config::Config;

use super::status;
use crate::operator::Operator;

/// No document has to be named.
#[tokio::test]
async fn changes_are_made_in_the_document_of_the_store_of_the_file() {
    let text = r#"
        version = 1
        [[policy]]
        name = "plan"
        quota = "fixed window of 2 per hour"
        key = "header:x-api-key"
    "#;
    let limits = Config::from_toml(text).expect("a file").build();
    let limits = limits.expect("limits");
    let layer = limits.layer("default").expect("a layer");
    let ann = Operator::new(&limits);
    let ban = json!({ "caller": "header:x-api-key=k1", "policy": "plan", "for": "1h" });
    assert_eq!(ann.post("ban", ban).await["changed"], true);
    assert_eq!((status(&layer, "k1"), status(&layer, "k2")), (429, 200));
    let found = ann.look_up("k1").await;
    assert_eq!(found["policies"][0]["banned_by"], "operator");
    assert_eq!(limits.control().expect("a document").entries().len(), 1);
}
