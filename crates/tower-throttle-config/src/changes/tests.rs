use super::{Config, Effect};

/// Returns the changes between two files that begin in the same way.
fn changes(old: &str, new: &str) -> String {
    let config = |text| Config::from_toml(&format!("version = 1\n{text}")).expect("no mistake");
    Config::diff(&config(old), &config(new)).to_string()
}

/// Asserts what becomes of the policy.
#[track_caller]
fn assert_effect(old: &str, new: &str, effect: &str) {
    let found = changes(old, new);
    let start = format!("policy \"api\": {effect}; ");
    assert!(found.starts_with(&start), "{found}");
}

fn policy(fields: &str) -> String {
    format!("[[policy]]\nname = \"api\"\n{fields}\n")
}

#[test]
fn the_place_of_a_policy_and_of_its_fields_does_not_matter() {
    let one = "[[policy]]\nname = \"a\"\nquota = \"1 per day\"\nshared = true\n";
    let other = "[[policy]]\nname = \"b\"\nquota = \"2 per day\"\n";
    let turned = "[[policy]]\nshared = true\nquota = \"1 per day\"\nname = \"a\"\n";
    assert_eq!(
        changes(&format!("{one}{other}"), &format!("{other}\n# b\n{turned}")),
        ""
    );
}

#[test]
fn a_bucket_is_kept_where_its_name_in_the_store_is() {
    let plain = policy("quota = \"10 per day\"");
    for (fields, effect) in [
        ("quota = '10 per day, burst 20'", "kept"),
        ("quota = '10 per day'\nmode = 'shadow'", "kept"),
        ("quota = '10 per day'\nwhen = { path = '/api' }", "kept"),
        ("quota = 'fixed window of 10 per day'", "starts afresh"),
        ("quota = '10 per day'\nkey = 'header:a'", "starts afresh"),
        ("quota = '10 per day'\nshared = true", "starts afresh"),
    ] {
        assert_effect(&plain, &policy(fields), effect);
    }
}

#[test]
fn another_prefix_starts_the_buckets_of_addresses_afresh() {
    let file = |key: &str, tables: &str| {
        let policy = policy(&format!("quota = \"1 per day\"{key}"));
        format!("{tables}\n{policy}")
    };
    let afresh = |key: &str, before: &str, after: &str| {
        let found = changes(&file(key, before), &file(key, after));
        let found = found.split_once("policy \"api\": starts afresh; ")?.1;
        found
            .split_once(".ipv6_prefix: 64 -> 56")
            .map(|(table, _)| table.to_owned())
    };
    let client_ip = "[client_ip]\ntrusted = [\"10.0.0.7\"]";
    let narrow = format!("{client_ip}\nipv6_prefix = 56");
    let peer = "[peer]\nipv6_prefix = 56";
    let in_parts = "\nkey = { all = [\"method\", [\"header:x-user\", \"client_ip\"]] }";
    for (key, before, after, expected) in [
        // The default key, and the default prefix.
        ("", "", peer, Some("peer")),
        ("\nkey = 'client_ip'", client_ip, &narrow, Some("client_ip")),
        (in_parts, client_ip, &narrow, Some("client_ip")),
        ("\nkey = { peer = { ipv6_prefix = 48 } }", "", peer, None),
        ("\nkey = 'method'", client_ip, &narrow, None),
        ("\nshared = true", "", peer, None),
        ("", peer, "[peer]\nipv6_prefix = 56 # the same", None),
        ("", "", "[peer]\nipv6_prefix = 64", None),
    ] {
        let found = afresh(key, before, after);
        assert_eq!(found.as_deref(), expected, "{key} {after}");
    }
}

#[test]
fn tiers_keep_buckets_while_they_keep_their_algorithms() {
    let tiers = |free, paid| {
        let tiers = format!("free = {free:?}, paid = {paid:?}");
        policy(&format!(
            "quota = {{ by = \"plan\", tiers = {{ {tiers} }}, otherwise = \"free\" }}"
        ))
    };
    let old = tiers("10 per day", "20 per day");
    let found = changes(&old, &tiers("10 per day", "30 per day"));
    assert_eq!(
        found,
        "policy \"api\": kept; quota: \
         { by = \"plan\", otherwise = \"free\", tiers = { free = \"10 per day\", paid = \"20 per day\" } } -> \
         { by = \"plan\", otherwise = \"free\", tiers = { free = \"10 per day\", paid = \"30 per day\" } }"
    );
    let log = tiers("10 per day", "sliding log of 20 per day");
    assert_effect(&old, &log, "starts afresh");
    let turned = tiers("sliding log of 10 per day", "20 per day");
    assert_effect(&log, &turned, "starts afresh");
    let paid = log.replace("otherwise = \"free\"", "otherwise = \"paid\"");
    assert_effect(&log, &paid, "starts afresh");
    assert_effect(&old, &policy("quota = \"10 per day\""), "kept");
}

#[test]
fn layers_that_are_not_in_the_file_are_compared_too() {
    let api = policy("quota = \"10 per day\"");
    assert_eq!(changes(&api, &format!("{api}[layer.default]\n")), "");
    assert_eq!(
        changes(&api, &format!("{api}[limiter.jobs]\n")),
        "layer \"default\": gone\nlimiter \"jobs\": new"
    );
    assert_eq!(
        changes(&api, &format!("{api}[layer.default]\nheaders = \"none\"\n")),
        "layer \"default\": kept; headers: none -> \"none\""
    );
}

#[test]
fn no_secret_is_shown() {
    let api = policy("quota = \"10 per day\"");
    let with = |secret| {
        format!(
            "{api}[store]\nredis = \"redis://{secret}@a\"\n[lists]\ndeny_keys = {{ api = [\"{secret}\"] }}\n\
             [layer.default]\npartition_key_secret = \"{secret}\"\n"
        )
    };
    assert_eq!(
        changes(&with("sesame"), &with("barley")),
        "layer \"default\": kept; partition_key_secret: .. -> ..\n\
         store: needs a restart; redis: .. -> ..\n\
         lists: kept; deny_keys: .. -> .."
    );
    assert_eq!(
        changes(&api, &with("sesame")),
        "layer \"default\": kept; partition_key_secret: none -> ..\n\
         store: needs a restart\nlists: new"
    );
}

#[test]
fn what_stays_is_listed_and_no_change() {
    let text = format!("version = 1\n{}", policy("quota = \"10 per day\""));
    let config = Config::from_toml(&text).expect("no mistake");
    let changes = Config::diff(&config, &config);
    let all = changes.all().iter();
    let all: Vec<_> = all.map(|change| (&*change.path, change.effect)).collect();
    let kept = ["policy \"api\"", "layer \"default\""].map(|path| (path, Effect::Kept));
    assert_eq!(all, kept);
    assert!(changes.is_empty() && changes.all().iter().all(|change| change.is_unchanged()));
    assert_eq!(changes.summary(), "nothing changed");
}
