//! Fields whose effect the builders show: of `[store]`, of `[limiter.NAME]`, and two of policies that
//! need Redis, or a process that dies.

use std::fs;

use super::{super::world::World, variants};
use crate::{Config, builders::Builders};

/// A field, a file with it and without it, and what only the builder of the first shows.
type Shown = (&'static str, &'static str, &'static str);

fn shown(builders: &Builders, field: &str) -> String {
    match field.split('.').next() {
        Some("store") => format!("{:?}", builders.store),
        Some("limiter") => format!("{:?}", builders.limiters["jobs"]),
        _ => format!("{:?}", builders.layers["default"]),
    }
}

#[rustfmt::skip]
pub(super) const CASES: &[Shown] = &[
    ("store.memory", "⟦memory = true¦reader = 'small'⟧", "MemoryStoreBuilder"),
    ("store.reader", "⟦reader = 'small'¦memory = true⟧", "MemoryStore("),
    ("store.capacity", "memory = true\n⟦capacity = 10¦⟧", "capacity: 10,"),
    ("store.clock", "memory = true\n⟦clock = 'manual'¦⟧", "ManualClock"),
    ("store.name", "memory = true\n⟦name = 'mine'¦⟧", "name: \"mine\""),
    ("limiter.policies", "⟦policies = ['day']¦⟧", "policies: [Policy { name: Some(\"day\")"),
    ("limiter.lists", "⟦lists = false¦⟧", "lists: None"),
    ("limiter.on_store_failure", "⟦on_store_failure = 'deny'¦⟧", "], lists: Some(Lists { networks: 0, keys: 1, .. }), on_store_failure: Deny"),
    ("limiter.shadow_all", "⟦shadow_all = true¦⟧", "shadow_all: true"),
    ("limiter.max_waiting", "⟦max_waiting = 3¦⟧", "max_waiting: Some(3)"),
    ("limiter.name", "⟦name = 'workers'¦⟧", "name: Some(\"workers\")"),
    ("limiter.observe", "⟦observe = 'counter'¦⟧", "observer: Some("),
    ("policy.lease", "policy = [{ name = 'api', quota = '2000 per second'⟦, lease = true¦⟧ }]", "leases: true"),
    ("policy.hold_for", "⟦hold_for = '30s'¦⟧", "hold_for: Some(30s)"),
    ("policy.hold_for", "settle_by = 'failures'⟦, hold_for = '30s'¦⟧", "hold_for: Some(30s)"),
    // The effect of a file of lists is tested below.
    ("lists.file", "| ⟦lists = { file = 'src/builders/tests/fields/lists.txt' }¦⟧", "lists: Some("),
    ("store.redis", "⟦redis = 'redis://127.0.0.1'¦memory = true⟧", "RedisStoreBuilder"),
    ("store.name", "redis = 'redis://127.0.0.1'\n⟦name = 'mine'¦⟧", "name: \"mine\""),
    ("store.prefix", "redis = 'redis://127.0.0.1'\n⟦prefix = 'mine'¦⟧", "prefix: \"mine\""),
    ("store.secret", "redis = 'redis://127.0.0.1'\n⟦secret = 's3cret'¦⟧", "secret: a secret"),
    ("store.timeout", "redis = 'redis://127.0.0.1'\n⟦timeout = '70ms'¦⟧", "timeout: 70ms"),
    ("store.connections", "redis = 'redis://127.0.0.1'\n⟦connections = 3¦⟧", "connections: 3"),
    ("store.max_in_flight", "redis = 'redis://127.0.0.1'\n⟦max_in_flight = 5¦⟧", "max_in_flight: 5,"),
    ("store.denial_cache_ttl", "redis = 'redis://127.0.0.1'\n⟦denial_cache_ttl = '7s'¦⟧", "denial_cache_ttl: 7s"),
    ("store.password_file", "redis = 'redis://127.0.0.1'\n⟦password_file = 'tests/config/good/password.txt'¦⟧", "credentials: Some("),
    ("store.user_file", "redis = 'redis://127.0.0.1'\n⟦password_file = 'tests/config/good/password.txt'\nuser_file = 'tests/config/good/user.txt'¦⟧", "credentials: Some("),
];

/// Without TLS, each of these settings is a mistake.
pub(super) const TLS: [&str; 4] = [
    "store.tls_authorities",
    "store.tls_server_name",
    "store.tls_client_certificate",
    "store.tls_client_key",
];

#[test]
fn each_field_for_tls_reaches_the_builder() {
    for field in TLS {
        let field = field.strip_prefix("store.").expect("a field");
        let beside = match field {
            "tls_client_key" => "tls_client_certificate = 'a.pem'\n",
            _ => "",
        };
        let text = format!(
            "{ONE_POLICY}[store]\nredis = 'redis://127.0.0.1'\n{beside}{field} = 'a.pem'\n"
        );
        let config = Config::from_toml(&text).expect("the form");
        let errors = Builders::read(&config).expect_err("no TLS").to_string();
        let expected = format!("store.{field}: `{field}`: the URL does not ask for TLS");
        assert!(errors.contains(&expected), "{errors}");
    }
}

#[test]
fn each_field_of_a_store_or_limiter_reaches_the_builder() {
    let world = World::new();
    for (field, file, expected) in CASES {
        let files = variants(field, file);
        let [with, without] = files.map(|file| shown(&world.builders(&file), field));
        assert!(with.contains(expected), "{field}: {with}");
        assert!(!without.contains(expected), "{field}: {without}");
    }
}

const ONE_POLICY: &str = "version = 1\npolicy = [{ name = \"api\", quota = \"2 per minute\" }]\n";

#[test]
fn a_file_of_lists_is_beside_the_configuration_and_has_lines() {
    let folder = std::env::temp_dir().join(format!("tower-throttle-lists-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("limits.toml");
    let text = format!(
        "{ONE_POLICY}lists = {{ allow_ips = [\"192.0.2.0/24\"], deny_keys = {{ api = [\"k1\"] }}, file = \"more.txt\" }}\n"
    );
    fs::write(&path, text).expect("a file");
    let read = |more: &str| {
        fs::write(folder.join("more.txt"), more).expect("a file");
        Builders::read(&Config::from_path(&path).expect("the form"))
    };

    let built = read("# of the office\ndeny 198.51.100.0/24\nallow key api number:7\n")
        .expect("no mistake");
    let layer = built.layers["default"].clone().build().expect("a layer");
    let shown = format!("{layer:?}");
    let expected = "Lists { networks: 2, keys: 2, .. }";
    assert!(shown.contains(expected), "{shown}");

    let errors = read("deny 198.51.100.0/24\nallow key api k1\n").expect_err("a mistake");
    let more = folder.join("more.txt");
    let shown = errors.to_string();
    let start = format!("{}:3:", path.display());
    assert!(shown.starts_with(&start), "{shown}");
    let place = format!("{}:2: ", more.display());
    let is_so = shown.contains(&place) && shown.ends_with("(listed-twice)");
    assert!(is_so, "{shown}");

    let shown = read("deny key apy k1\n")
        .expect_err("a mistake")
        .to_string();
    let end = r#"lists.file: no policy "apy"; did you mean "api"? (unknown-policy)"#;
    assert!(shown.ends_with(end), "{shown}");
    fs::remove_dir_all(&folder).expect("it is there");
}
