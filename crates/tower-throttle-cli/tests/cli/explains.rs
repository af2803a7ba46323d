//! `explain`.

use serde_json::json;
use tower_throttle::{Fingerprint, Key};

use crate::run::{File, Run, run};

const FILE: &str = r#"
version = 1

[store]
redis = "${NOT_SET_WHERE_THIS_RUNS}"
prefix = "shop"

[client_ip]
trusted = ["10.0.0.0/8"]

[lists]
deny_ips = ["192.0.2.0/24"]

[[policy]]
name = "burst"
quota = "10 per second, burst 20"
key = ["header:x-api-key", "client_ip"]

[[policy]]
name = "plan"
quota = { by = "plan", tiers = { free = "5 per day", paid = "50 per day" }, otherwise = "free" }
key = "header:x-api-key"
when = { path = "/api/**", method = ["POST", "PUT"] }
cost = { by = "size" }
mode = "shadow"

[[policy]]
name = "tenant"
quota = "7 per minute"
key = "reader:tenant"
on_missing_key = "skip"

[layer.api]
[layer.web]
policies = ["burst"]
when = { path = "/web/**" }
"#;

fn explain(file: &File, more: &[&str]) -> Run {
    let mut arguments = vec![
        "explain",
        file.path(),
        "--layer",
        "api",
        "--peer",
        "203.0.113.9",
    ];
    arguments.extend(more);
    run(&arguments)
}

#[test]
fn it_says_which_policies_apply_and_why_others_do_not() {
    let file = File::new(FILE);
    let run = explain(&file, &["--path", "/api/x", "--header", "x-api-key: k1"]).with_code(0);
    let fingerprint = Fingerprint::from(&Key::from("k1"));
    let expected = format!(
        r#"layer "api": asks its policies
policy "burst": applies
  reads        "header:x-api-key": found
  fingerprint  {fingerprint}
  key          k1
  redis_key    shopb{{{fingerprint}}}burst
  cost         1
  quota        10 per second, burst 20
  mode         enforce
policy "plan": does not apply
  when         method = ["POST", "PUT"]: does not hold
  when         path = "/api/**": holds
policy "tenant": does not apply
  reads        "reader:tenant": unknown here; say what it returns with `--reader`
"#
    );
    assert_eq!(run.out, expected);
}

#[test]
fn readers_return_what_the_user_says() {
    let file = File::new(FILE);
    let arguments = [
        "--json",
        "--method",
        "POST",
        "--path",
        "/api/x",
        "--header",
        "x-api-key: k1",
        "--reader",
        "quota:plan=paid",
        "--reader",
        "cost:size=3",
        "--reader",
        "key:tenant=acme",
    ];
    let json = explain(&file, &arguments).with_code(0).json();
    let plan = &json["policies"][1];
    assert_eq!(plan["quota"], "50 per day");
    assert_eq!(
        (&plan["cost"], &plan["mode"]),
        (&json!(3), &json!("shadow"))
    );
    assert_eq!(json["policies"][2]["key"], "acme");
    let unknown = explain(&file, &["--reader", "key:tennant=1"]).with_code(2);
    assert!(unknown.err.contains("names no key reader"), "{unknown:?}");
}

#[test]
fn an_address_stands_in_for_a_key_that_is_not_there() {
    let file = File::new(FILE);
    let json = explain(
        &file,
        &["--json", "--header", "x-forwarded-for: 198.51.100.7"],
    );
    let burst = &json.with_code(0).json()["policies"][0];
    // The peer is no trusted proxy.
    assert_eq!(burst["key"], "203.0.113.9");
    assert_eq!(burst["keys"][0]["found"], false);
}

#[test]
fn lists_and_missing_keys_deny() {
    let file = File::new(FILE);
    let arguments = [
        "explain",
        file.path(),
        "--layer",
        "api",
        "--peer",
        "192.0.2.1",
    ];
    let listed = run(&arguments).with_code(0);
    assert!(
        listed.out.contains("the caller is on the deny list"),
        "{listed:?}"
    );
    let post = explain(&file, &["--json", "--method", "POST", "--path", "/api/x"]);
    let plan = &post.with_code(0).json()["policies"][1];
    assert_eq!(
        (&plan["applies"], &plan["denies_missing_key"]),
        (&json!(false), &json!(true))
    );
}

#[test]
fn nothing_that_limits_is_a_no() {
    let file = File::new(FILE);
    let web = [
        "explain",
        file.path(),
        "--layer",
        "web",
        "--peer",
        "203.0.113.9",
    ];
    let outside = run(&web).with_code(1);
    assert!(
        outside
            .out
            .starts_with("layer \"web\": passes the request on\n"),
        "{outside:?}"
    );
    let inside = run(&[&web[..], &["--path", "/web/x"]].concat()).with_code(0);
    assert!(
        inside.out.contains("policy \"burst\": applies"),
        "{inside:?}"
    );
    let unknown = run(&["explain", file.path(), "--layer", "wbe"]).with_code(2);
    assert!(unknown.err.contains("web"), "{unknown:?}");
}

#[test]
fn the_only_layer_is_taken_and_an_unknown_address_is_asked_for() {
    let file = File::new(
        "version = 1\n[[policy]]\nname = \"burst\"\nquota = \"10 per second\"\n[layer.api]\n",
    );
    let run = run(&["explain", file.path()]).with_code(0);
    let expected = "layer \"api\": asks its policies\n\
        policy \"burst\": denies the request, which lacks its key\n  \
        reads        peer: the client's address is unknown here; say it with `--peer`\n";
    assert_eq!(run.out, expected);
}

#[test]
fn a_layer_in_shadow_enforces_nothing() {
    let file = File::new(
        "version = 1\n[[policy]]\nname = \"a\"\nquota = \"1 per day\"\nkey = \"header:x-api-key\"\n\
         [layer.default]\nshadow_all = true\n",
    );
    let explain = ["explain", file.path(), "--header", "x-api-key:k1"];
    let found = run(&explain).with_code(0);
    assert!(found.out.contains("  mode         shadow\n"), "{found:?}");
    let lacks = run(&["explain", file.path()]).with_code(0);
    assert!(lacks.out.contains("would deny the request"), "{lacks:?}");
}

#[test]
fn a_key_that_was_not_typed_is_not_shown() {
    let text =
        "version = 1\n[[policy]]\nname = \"a\"\nquota = \"1 per day\"\nkey = \"cookie:session\"\n";
    let file = File::new(text);
    let header = "cookie: theme=dark; session=abc";
    let json = run(&["explain", file.path(), "--json", "--header", header])
        .with_code(0)
        .json();
    assert_eq!(json["policies"][0]["key"], "abc");
    assert_eq!(json["policies"][0]["redis_key"], json!(null));
    let fingerprint = Fingerprint::from(&Key::from("abc")).to_string();
    assert_eq!(json["policies"][0]["fingerprint"], fingerprint);
}
