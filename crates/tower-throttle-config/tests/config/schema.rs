//! The JSON Schema in the repository.

use std::{env, fs};

use serde_json::Value;
use tower_throttle_config::Config;

fn schema() -> Value {
    serde_json::from_str(&Config::json_schema()).expect("JSON")
}

#[test]
fn the_schema_in_the_repository_is_the_one_of_the_code() {
    let path = "../../docs/tower-throttle.schema.json";
    if env::var_os("TT_WRITE").is_some() {
        fs::write(path, Config::json_schema()).expect("the schema");
    }
    let text = fs::read_to_string(path).expect("the schema");
    let written: Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        written == schema(),
        "with TT_WRITE=1, {path} is the schema of the code"
    );
}
