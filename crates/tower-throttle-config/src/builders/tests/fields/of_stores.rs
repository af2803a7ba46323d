//! Fields whose effect the builders show: of `[store]`, of `[limiter.NAME]`, and two of policies that
//! need Redis, or a process that dies.

use std::fs;

use super::{super::world::World, variants};
use crate::{Config, builders::Builders};

/// A field, a file with it and without it, what to look at, and what only the first shows.
type Shown = (
    &'static str,
    &'static str,
    fn(&Builders) -> String,
    &'static str,
);

const STORE: fn(&Builders) -> String = |builders| format!("{:?}", builders.store);
const JOBS: fn(&Builders) -> String = |builders| format!("{:?}", builders.limiters["jobs"]);
const LAYER: fn(&Builders) -> String = |builders| format!("{:?}", builders.layers["default"]);

macro_rules! store {
    ($fields:literal) => {
        concat!(
            "policy = [{ name = \"api\", quota = \"2 per minute\" }]\n[store]\n",
            $fields
        )
    };
}

macro_rules! jobs {
    ($fields:literal) => {
        concat!(
            "policy = [{ name = \"api\", quota = \"2 per minute\" }, { name = \"day\", quota = \"3 per day\" }]\n",
            "lists = { allow_keys = [\"a\"] }\nlayer = { all = {} }\n[limiter.jobs]\n",
            $fields
        )
    };
}

#[rustfmt::skip]
pub(super) const CASES: &[Shown] = &[
    ("store.memory", store!("⟦memory = true¦reader = \"small\"⟧"), STORE, "MemoryStoreBuilder"),
    ("store.reader", store!("⟦reader = \"small\"¦memory = true⟧"), STORE, "MemoryStore("),
    ("store.capacity", store!("memory = true\n⟦capacity = 10¦⟧"), STORE, "capacity: 10,"),
    ("store.clock", store!("memory = true\n⟦clock = \"manual\"¦⟧"), STORE, "ManualClock"),
    ("store.name", store!("memory = true\n⟦name = \"mine\"¦⟧"), STORE, "name: \"mine\""),
    ("limiter.policies", jobs!("⟦policies = [\"day\"]¦⟧"), JOBS, "policies: [Policy { name: Some(\"day\")"),
    ("limiter.lists", jobs!("⟦lists = false¦⟧"), JOBS, "lists: None"),
    ("limiter.on_store_failure", jobs!("⟦on_store_failure = \"deny\"¦⟧"), JOBS, "], lists: Some(Lists { networks: 0, keys: 1, .. }), on_store_failure: Deny"),
    ("limiter.shadow_all", jobs!("⟦shadow_all = true¦⟧"), JOBS, "shadow_all: true"),
    ("limiter.max_waiting", jobs!("⟦max_waiting = 3¦⟧"), JOBS, "max_waiting: Some(3)"),
    ("limiter.name", jobs!("⟦name = \"workers\"¦⟧"), JOBS, "name: Some(\"workers\")"),
    ("limiter.observe", jobs!("⟦observe = \"counter\"¦⟧"), JOBS, "observer: Some("),
    ("policy.lease", "policy = [{ name = \"api\", quota = \"2000 per second\"⟦, lease = true¦⟧ }]", LAYER, "leases: true"),
    ("policy.hold_for", "policy = [{ name = \"api\", quota = \"2 per minute\"⟦, hold_for = \"30s\"¦⟧ }]", LAYER, "hold_for: Some(30s)"),
    ("policy.hold_for", "policy = [{ name = \"api\", quota = \"2 per minute\", settle_by = \"failures\"⟦, hold_for = \"30s\"¦⟧ }]", LAYER, "hold_for: Some(30s)"),
    // The effect of a file of lists is tested below.
    ("lists.file", "policy = [{ name = \"api\", quota = \"2 per minute\" }]⟦\nlists = { file = \"src/builders/tests/fields/lists.txt\" }¦⟧", LAYER, "lists: Some("),
    ("store.redis", store!("⟦redis = \"redis://127.0.0.1\"¦memory = true⟧"), STORE, "RedisStoreBuilder"),
    ("store.name", store!("redis = \"redis://127.0.0.1\"\n⟦name = \"mine\"¦⟧"), STORE, "name: \"mine\""),
    ("store.prefix", store!("redis = \"redis://127.0.0.1\"\n⟦prefix = \"mine\"¦⟧"), STORE, "prefix: \"mine\""),
    ("store.secret", store!("redis = \"redis://127.0.0.1\"\n⟦secret = \"s3cret\"¦⟧"), STORE, "secret: a secret"),
    ("store.timeout", store!("redis = \"redis://127.0.0.1\"\n⟦timeout = \"70ms\"¦⟧"), STORE, "timeout: 70ms"),
    ("store.connections", store!("redis = \"redis://127.0.0.1\"\n⟦connections = 3¦⟧"), STORE, "connections: 3"),
    ("store.max_in_flight", store!("redis = \"redis://127.0.0.1\"\n⟦max_in_flight = 5¦⟧"), STORE, "max_in_flight: 5,"),
    ("store.denial_cache_ttl", store!("redis = \"redis://127.0.0.1\"\n⟦denial_cache_ttl = \"7s\"¦⟧"), STORE, "denial_cache_ttl: 7s"),
];

#[test]
fn each_field_of_a_store_or_limiter_reaches_the_builder() {
    let world = World::new();
    for (field, file, show, shown) in CASES {
        let (with, without) = variants(file);
        let (with, without) = (
            show(&world.builders(&with)),
            show(&world.builders(&without)),
        );
        assert!(with.contains(shown), "{field}: {with}");
        assert!(!without.contains(shown), "{field}: {without}");
    }
}

const ONE_POLICY: &str = "version = 1\npolicy = [{ name = \"api\", quota = \"2 per minute\" }]\n";

#[test]
fn a_file_of_lists_is_beside_the_configuration_and_has_lines() {
    let folder = std::env::temp_dir().join(format!("tower-throttle-lists-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("limits.toml");
    let text = format!(
        "{ONE_POLICY}lists = {{ allow_ips = [\"192.0.2.0/24\"], deny_keys = [\"k1\"], file = \"more.txt\" }}\n"
    );
    fs::write(&path, text).expect("a file");
    let read = |more: &str| {
        fs::write(folder.join("more.txt"), more).expect("a file");
        Builders::read(&Config::from_path(&path).expect("the form"))
    };

    let built =
        read("# of the office\ndeny 198.51.100.0/24\nallow number 7\n").expect("no mistake");
    let layer = built.layers["default"].clone().build().expect("a layer");
    let shown = format!("{layer:?}");
    assert!(
        shown.contains("Lists { networks: 2, keys: 2, .. }"),
        "{shown}"
    );

    let errors = read("deny 198.51.100.0/24\nallow key k1\n").expect_err("a mistake");
    let more = folder.join("more.txt");
    let shown = errors.to_string();
    let start = format!("{}:3:", path.display());
    assert!(shown.starts_with(&start), "{shown}");
    let place = format!("{}:2: ", more.display());
    assert!(
        shown.contains(&place) && shown.ends_with("(listed-twice)"),
        "{shown}"
    );
    fs::remove_dir_all(&folder).expect("it is there");
}
