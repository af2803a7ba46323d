//! All mistakes are found at once, each at its field.

use super::super::Builders;
use crate::{Config, Readers};

fn problems(text: &str) -> String {
    let config = Config::from_toml(text).unwrap_or_else(|errors| panic!("{errors}"));
    let readers = Readers::new()
        .quota("plan", |_| None)
        .key("tenant", tower_throttle::key::global());
    let found = Builders::read(&config.readers(readers));
    found.expect_err("mistakes").to_string()
}

#[track_caller]
fn assert_problems(text: &str, expected: &[&str]) {
    let found = problems(text);
    let found: Vec<_> = found.lines().collect();
    assert_eq!(found, expected, "{text}");
}

/// Compares the mistakes of a file that is not read: the line of each, and its code.
#[cfg(feature = "redis")]
#[track_caller]
fn assert_unread(text: &str, expected: &[&str]) {
    let errors = Config::from_toml(text).expect_err("mistakes");
    let problems = errors.problems().iter();
    let found =
        problems.map(|problem| format!("{} {}", problem.line().unwrap_or(0), problem.code()));
    assert_eq!(found.collect::<Vec<_>>(), expected, "{text}\n{errors}");
}

#[cfg(feature = "redis")]
#[test]
fn a_mistake_of_form_hides_no_mistake_in_another_table() {
    let file = r#"version = 1
[store]
redis = "redis://127.0.0.1/"
prefix = "{a}"
[client_ip]
trusted = ["proxy"]
[peer]
ipv6_prefix = 200
[lists]
allow_ips = ["elsewhere"]
[[policy]]
name = "dear"
quota = "10 per second"
cost = 20
[[policy]]
name = "misspelled"
quota = "10 per secnd"
cost = 20
[[policy]]
quota = "10 per second"
cost = 20
[[policy]]
name = "plan"
quota = { by = "plans", tiers = { free = "10 per second" }, otherwise = "fre" }
when = { path = "b" }
[[policy]]
name = "good"
quota = "10 per second"
key = "client_ip"
[layer.a]
policies = ["good"]
headers = "none"
partition_key_secret = "s"
[layer.b]
wait = "1s"
"#;
    let all = [
        "4 key-prefix",
        "6 trusted-proxy",
        "8 out-of-range",
        "10 list-entry",
        "14 cost-above-capacity",
        "17 quota-text",
        "19 missing-field",
        "24 unknown-tier",
        "25 bad-pattern",
        "33 partition-key-unsupported",
        "35 unknown-field",
    ];
    assert_unread(file, &all);
    // Without a version, it is one of this version.
    let versionless = file.replace("version = 1\n", "\n");
    assert_unread(&versionless, &[&["1 missing-field"][..], &all].concat());
}

#[cfg(feature = "redis")]
#[test]
fn a_mistake_of_form_makes_nothing_else_seem_wrong() {
    const POLICIES: &str = r#"
[[policy]]
name = "a"
quota = "10 per second"
key = "client_ip"
[[policy]]
name = "b"
quota = "10 per second"
when = { method = "GET" }
settle_by = "failures"
"#;
    for (tables, expected) in [
        // A key has the broken table.
        ("client_ip = { trusted = [1] }", &["1 wrong-type"][..]),
        ("client_ip = 7", &["1 wrong-type"]),
        // A broken layer or limiter may have the policies that no other has.
        (
            "layer = { x = { policies = [\"a\"] }, y = { policy = [\"b\"] } }",
            &["1 unknown-field"],
        ),
        (
            "limiter.x.policies = [\"a\"]\nlayer.y.policies = [\"c\"]",
            &["2 unknown-policy"],
        ),
        (
            "limiter.x.policies = [\"a\"]\nlimiter.y.name = 7\nlayer = {}",
            &["2 wrong-type", "3 empty-value"],
        ),
        // Registered by the application later.
        (
            "store = { redis = \"${NOT_SET_HERE}\", clock = \"mine\" }\npeer = 7",
            &["2 wrong-type"],
        ),
        // The name of a layer is misspelled, or all layers are wrong.
        (
            "limiter.x.policies = [\"a\"]\nlayers.y.policies = [\"b\"]",
            &["2 unknown-field"],
        ),
        ("limiter.x.policies = [\"a\"]\nlayer = 7", &["2 wrong-type"]),
    ] {
        let proxies = match tables.contains("client_ip") {
            true => "",
            false => "client_ip = { trusted = [\"10.0.0.1\"] }\n",
        };
        let file = format!("{tables}\nversion = 1\n{proxies}{POLICIES}");
        assert_unread(&file, expected);
    }
    // Another version may have another form.
    let unknown = "version = 2\npeer = 7\n[[policy]]\nname = \"a\"\n";
    assert_unread(unknown, &["1 file-version"]);
    // Layers name a broken policy, and have a policy twice.
    for layers in ["", "layer.x.policies = [\"a\", \"b\"]\n"] {
        let policies = r#"policy = [
            { name = "a", quota = 7, strike_on_denial = true },
            { name = "b", quota = "10 per second" },
            { name = "b", quota = "10 per second" },
        ]"#;
        let file = format!("{policies}\nversion = 1\n{layers}");
        assert_unread(&file, &["2 wrong-type", "4 duplicate-policy"]);
    }
}

#[test]
fn mistakes_of_all_policies_and_layers_are_found_at_once() {
    assert_problems(
        r#"version = 1
[client_ip]
trusted = ["10.0.0.0/8", "proxy", "0.0.0.0/0"]
header = "header:x y"
[lists]
allow_ips = ["10.1.0.0/16", "10.2.0.1/16", "elsewhere"]
deny_ips = ["10.1.0.0/16"]
allow_keys = ["a", "b", "a"]
deny_keys = ["b", 7, 7]
[[policy]]
name = "burst"
quota = "10 per second"
key = ["header:x y", "reader:tenent"]
[[policy]]
name = "plan"
quota = { by = "plans", tiers = { free = "10 per second", paid = "20 per second, burst 5" }, otherwise = "fre" }
cost = 20
when = { method = "get", path = ["/a", "b"], host = "a:80", header = { "x y" = true } }
[[policy]]
name = "login"
quota = "10 at once"
mode = "shadow"
settle_by = { header = "x y" }
[[policy]]
name = "dear"
quota = "10 per second"
cost = 20
[layer.a]
policies = ["dear"]
[layer.b]
headers = "none"
partition_key_secret = "s"
policies = ["dear"]
"#,
        &[
            r#"3:26: client_ip.trusted[1]: trusted proxy "proxy" is no address and no CIDR range; name it as "10.0.0.7" or "10.0.0.8/30" (trusted-proxy)"#,
            r#"3:35: client_ip.trusted[2]: trusted proxies "0.0.0.0/0" match every client's address, so each client could spoof its own; name the addresses of your proxies (trusts-every-address)"#,
            r#"4:10: client_ip.header: "x y" is not a header name; use a token such as "x-api-key" (header-name)"#,
            r#"6:29: lists.allow_ips[1]: listed range "10.2.0.1/16" has bits set beyond its prefix; write "10.2.0.0/16" for the range, or the address alone (list-host-bits)"#,
            r#"6:44: lists.allow_ips[2]: listed address "elsewhere" is no address and no CIDR range; write it as "198.51.100.7" or "198.51.100.0/24" (list-entry)"#,
            r#"7:13: lists.deny_ips[0]: "10.1.0.0/16" is on the allow list and on the deny list; remove one (listed-twice)"#,
            r#"8:25: lists.allow_keys[2]: a key is listed twice; remove one (listed-twice)"#,
            r#"9:14: lists.deny_keys[0]: a key is on the allow list and on the deny list; remove one (listed-twice)"#,
            r#"9:22: lists.deny_keys[2]: a key is listed twice; remove one (listed-twice)"#,
            r#"11:8: policy "burst".name: no layer and no limiter has this policy; name it in their `policies`, or remove it (unused-policy)"#,
            r#"13:8: policy "burst".key[0]: "x y" is not a header name; use a token such as "x-api-key" (header-name)"#,
            r#"13:22: policy "burst".key[1]: no reader "tenent" of this kind is registered; did you mean "tenant"? (unknown-reader)"#,
            r#"15:8: policy "plan".name: no layer and no limiter has this policy; name it in their `policies`, or remove it (unused-policy)"#,
            r#"16:16: policy "plan".quota.by: no reader "plans" of this kind is registered; did you mean "plan"? (unknown-reader)"#,
            r#"16:106: policy "plan".quota.otherwise: no tier "fre"; did you mean "free"? (unknown-tier)"#,
            r#"18:19: policy "plan".when.method: no method "get"; did you mean "GET"? (bad-pattern)"#,
            r#"18:40: policy "plan".when.path[1]: path "b" does not begin with a slash; write "/b" (bad-pattern)"#,
            r#"18:53: policy "plan".when.host: host "a:80" has a port, and ports are not compared; leave it out (bad-pattern)"#,
            r#"18:80: policy "plan".when.header."x y": "x y" is not a header name; use a token such as "x-api-key" (header-name)"#,
            r#"20:8: policy "login".name: no layer and no limiter has this policy; name it in their `policies`, or remove it (unused-policy)"#,
            r#"22:8: policy "login".mode: a shadow policy cannot have a Concurrency quota, because its units are held by requests that were let in; drop that, or enforce the policy (cannot-shadow)"#,
            r#"23:24: policy "login".settle_by.header: "x y" is not a header name; use a token such as "x-api-key" (header-name)"#,
            r#"27:8: policy "dear".cost: `cost` exceeds the 10 units that the quota can grant at once; lower the cost, or raise the quota (cost-above-capacity)"#,
            r#"32:24: layer "b".partition_key_secret: `partition_key_secret` with header fields that have no place for it; use `headers = "draft10"`, or drop `partition_key_secret` (partition-key-unsupported)"#,
        ],
    );
}

#[test]
fn a_layer_that_cannot_be_built_is_a_mistake_at_its_field() {
    assert_problems(
        r#"version = 1
[[policy]]
name = "leased"
quota = "10000 per second"
lease = true
[[policy]]
name = "held"
quota = "10 at once"
[layer.api]
policies = ["leased"]
wait_up_to = "1s"
[layer.secret]
policies = ["leased"]
headers = "draft7"
partition_key_secret = "s"
[layer.shown]
policies = ["leased"]
headers = "none"
shadow_with_headers = true
[layer.shadow]
policies = ["held"]
shadow_all = true
[layer."ä"]
policies = ["leased"]
[limiter.jobs]
policies = ["leased"]
"#,
        &[
            r#"5:9: policy "leased".lease: `lease` cannot be combined with `wait_up_to`; it needs a TokenBucket without `max_debt` or `wait_up_to` (cannot-lease)"#,
            r#"8:9: policy "held".quota: a shadow policy cannot have a Concurrency quota, because its units are held by requests that were let in; drop that, or enforce the policy (cannot-shadow)"#,
            r#"15:24: layer "secret".partition_key_secret: `partition_key_secret` with header fields that have no place for it; use `headers = "draft10"`, or drop `partition_key_secret` (partition-key-unsupported)"#,
            r#"19:23: layer "shown".shadow_with_headers: `shadow_with_headers` with header fields that do not name policies; use `headers = "draft10"`, or drop `shadow_with_headers` (shadow-headers-unsupported)"#,
            r#"23:1: layer "ä": limiter name "ä" is not 1 to 64 printable ASCII characters; choose another name (limiter-name)"#,
        ],
    );
}

#[test]
fn a_limiter_takes_no_policy_that_reads_requests() {
    assert_problems(
        r#"version = 1
[[policy]]
name = "keyed"
quota = "10 per second"
key = "header:x-api-key"
on_missing_key = "skip"
[[policy]]
name = "writes"
quota = "10 per second"
when = { method = "POST" }
[limiter.good]
policies = ["keyed"]
[limiter.bad]
policies = ["keyed", "writes"]
"#,
        &[
            r#"10:8: policy "writes".when: `when` reads requests, which a `limiter` does not have; drop it, or use a `layer` (no-request-to-read)"#,
        ],
    );
}

#[test]
fn an_error_of_a_shared_policy_is_reported_once() {
    assert_problems(
        r#"version = 1
[[policy]]
name = "stubborn"
quota = "penalty after 3 strikes"
strike_on_denial = true
[layer.a]
[layer.b]
"#,
        &[
            r#"5:20: policy "stubborn".strike_on_denial: `strike_on_denial` cannot be combined with being the only policy that denies, because the denials of others are the strikes; drop it, or change that (cannot-strike)"#,
        ],
    );
}
