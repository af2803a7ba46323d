//! `explain`.

use serde_json::json;
use tower_throttle::{Fingerprint, Key};

use crate::run::{File, Run};

const FILE: &str = r#"
version = 1
store = { redis = "${NOT_SET_WHERE_THIS_RUNS}", prefix = "shop" }
client_ip = { trusted = ["10.0.0.0/8"] }
lists = { deny_ips = ["192.0.2.0/24"] }
policy = [
    { name = "burst", quota = "10 per second, burst 20", key = ["header:x-api-key", "client_ip"] },
    { name = "plan", key = "header:x-api-key", cost = { by = "size" }, mode = "shadow",
      quota = { by = "plan", tiers = { free = "5 per day", paid = "50 per day" }, otherwise = "free" },
      when = { path = "/api/**", method = ["POST", "PUT"] } },
    { name = "tenant", quota = "7 per minute", key = "reader:tenant", on_missing_key = "skip" },
]
[layer]
api = {}
web = { policies = ["burst"], when = { path = "/web/**" } }
"#;

/// Explains a request from an address to the layer `api`.
fn explain(file: &File, more: &str, code: i32) -> Run {
    file.run(
        &format!("explain FILE --layer api --peer 203.0.113.9 {more}"),
        code,
    )
}

#[test]
fn it_says_which_policies_apply_and_why_others_do_not() {
    let file = File::new(FILE);
    let run = explain(&file, r#"--path /api/x --header "x-api-key: k1""#, 0);
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
    let request = r#"--json --method POST --path /api/x --header "x-api-key: k1""#;
    let readers = "--reader quota:plan=paid --reader cost:size=3 --reader key:tenant=acme";
    explain(&file, &format!("{request} {readers}"), 0).has(&json!({ "policies": [
        {}, { "quota": "50 per day", "cost": 3, "mode": "shadow" }, { "key": "acme" },
    ] }));
    explain(&file, "--reader key:tennant=1", 2).says(&["names no key reader"]);
}

/// As `peek` names it.
#[test]
fn a_reader_returns_the_caller_that_other_commands_name() {
    let file = File::new(FILE);
    let ann = Fingerprint::from(&Key::from("ann"));
    let address: std::net::IpAddr = "203.0.113.9".parse().expect("an address");
    for (typed, key) in [
        ("ann", Key::from("ann")),
        ("text:ann", Key::from("ann")),
        ("1", Key::from("1")),
        ("number:1", Key::from(1)),
        ("ip:203.0.113.9", Key::from(address)),
        (&format!("fingerprint:{ann}"), Key::from("ann")),
        (&ann.to_string(), Key::from("ann")),
    ] {
        let fingerprint = Fingerprint::from(&key).to_string();
        let expected = json!({ "key": typed, "fingerprint": fingerprint });
        let run = explain(&file, &format!("--json --reader key:tenant={typed}"), 0);
        run.has(&json!({ "policies": [{}, {}, expected] }));
    }
    for typed in ["", "text:", "number:ann", "header:x-api-key=k1"] {
        explain(&file, &format!("--reader key:tenant={typed}"), 2).says(&["--reader: "]);
    }
}

#[test]
fn lists_and_missing_keys_deny() {
    let file = File::new(FILE);
    file.run("explain FILE --layer api --peer 192.0.2.1", 0)
        .says(&["the caller is on the deny list"]);
    let post = explain(&file, "--json --method POST --path /api/x", 0).json();
    let plan = &post["policies"][1];
    let said = (&plan["applies"], &plan["denies_missing_key"]);
    assert_eq!(said, (&json!(false), &json!(true)));
}

#[test]
fn nothing_that_limits_is_a_no() {
    let file = File::new(FILE);
    let outside = file.run("explain FILE --layer web --peer 203.0.113.9", 1);
    let says = "layer \"web\": passes the request on\n";
    assert!(outside.out.starts_with(says), "{outside:?}");
    let inside = "explain FILE --layer web --peer 203.0.113.9 --path /web/x";
    file.run(inside, 0).says(&["policy \"burst\": applies"]);
    file.run("explain FILE --layer wbe", 2).says(&["web"]);
}

/// A file with one policy, which has these fields, and perhaps a layer.
fn file_of(fields: &str, layer: &str) -> File {
    let policy = format!(r#"{{ name = "a", quota = "1 per day"{fields} }}"#);
    File::new(&format!("version = 1\npolicy = [{policy}]\n{layer}"))
}

#[test]
fn the_only_layer_is_taken_and_an_unknown_address_is_asked_for() {
    let expected = "layer \"api\": asks its policies\n\
        policy \"a\": denies the request, which lacks its key\n  \
        reads        peer: the client's address is unknown here; say it with `--peer`\n";
    let file = file_of("", "layer = { api = {} }");
    assert_eq!(file.run("explain FILE", 0).out, expected);
}

#[test]
fn a_layer_in_shadow_enforces_nothing() {
    let shadow = "layer = { default = { shadow_all = true } }";
    let file = file_of(r#", key = "header:x-api-key""#, shadow);
    file.run("explain FILE --header x-api-key:k1", 0)
        .says(&["  mode         shadow\n"]);
    file.run("explain FILE", 0)
        .says(&["would deny the request"]);
}

#[test]
fn a_key_that_was_not_typed_is_not_shown() {
    let file = file_of(r#", key = "cookie:session""#, "");
    let fingerprint = Fingerprint::from(&Key::from("abc")).to_string();
    let explain = r#"explain FILE --json --header "cookie: theme=dark; session=abc""#;
    let expected = json!({ "key": "abc", "redis_key": null, "fingerprint": fingerprint });
    file.run(explain, 0).has(&json!({ "policies": [expected] }));
}

/// A host has an option of its own.
#[test]
fn the_host_is_an_option_and_a_header() {
    let file = file_of(r#", shared = true, when = { host = "example.com" }"#, "");
    file.run("explain FILE", 0); // Without a host it is unclear, so the policy applies.
    for host in ["--host ", "--header host:"] {
        file.run(&format!("explain FILE {host}example.com"), 0);
        file.run(&format!("explain FILE {host}example.org"), 1);
    }
}
