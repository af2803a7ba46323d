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
