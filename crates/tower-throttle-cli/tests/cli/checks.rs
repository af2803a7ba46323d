//! `check`, `diff` and `schema`.

use serde_json::json;

use crate::run::{File, run, run_with};

const GOOD: &str = r#"
version = 1
policy = [
    { name = "burst", quota = "10 per second, burst 20", key = ["reader:tenant", "header:x-api-key"] },
    { name = "plan", key = "header:x-api-key", when = { reader = "internal" },
      quota = { by = "plan", tiers = { free = "5 per day", paid = "50 per day" }, otherwise = "free" } },
]
layer = { api = {} }
limiter = { jobs = { policies = ["burst"] } }
"#;

const BAD: &str = "version = 1\n[[policy]]\nname = \"burst\"\nquota = 10\nkeys = \"peer\"\n";

#[test]
fn a_right_file_is_counted_and_its_readers_are_listed() {
    let file = File::new(GOOD);
    let run = file.run("check FILE", 0);
    let expected = format!(
        "{}: ok\n  policies     burst, plan\n  layers       api\n  limiters     jobs\n  \
         needs        key:tenant, quota:plan, when:internal\n",
        file.path()
    );
    assert_eq!((run.out.as_str(), run.err.as_str()), (&*expected, ""));
    file.run("check --json FILE", 0).has(&json!([{
        "ok": true,
        "policies": ["burst", "plan"],
        "layers": ["api"],
        "limiters": ["jobs"],
        "needs": ["key:tenant", "quota:plan", "when:internal"],
    }]));
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_places() {
    let file = File::new(BAD);
    let run = file.run("check FILE", 1);
    let expected = [("4:9", "wrong-type"), ("5:1", r#"did you mean "key"?"#)];
    assert_eq!((run.out.lines().count(), run.err.as_str()), (2, ""));
    for (line, (place, says)) in run.out.lines().zip(expected) {
        let place = format!("{}:{place}: ", file.path());
        assert!(line.starts_with(&place) && line.contains(says), "{run:?}");
    }

    let quotas = GOOD.replace("per second", "per secnd");
    let quotas = File::new(&quotas.replace("5 per day", "5 per dya"));
    let quotas = quotas.run("check FILE", 1);
    quotas.says(&[r#"did you mean "second"?"#]);
    assert_eq!(quotas.out.lines().count(), 2, "{quotas:?}");

    let unknown = json!({ "line": 5, "column": 1, "code": "unknown-field", "file": file.path() });
    file.run("--json check FILE", 1)
        .has(&json!([{ "ok": false, "problems": [{}, unknown] }]));
}

#[test]
fn readers_are_compared_with_those_that_are_registered() {
    let file = File::new(GOOD);
    let readers = "check FILE --readers key:tenant,quota:plan,when:internal";
    file.run(readers, 0);
    let missing = file.run("check FILE --readers key:tennant,quota:plan", 1);
    missing.says(&["unknown-reader"]);
    assert_eq!(missing.out.lines().count(), 2, "{missing:?}");
    file.run("check FILE --readers plan", 2)
        .says(&["write KIND:NAME"]);
}

#[test]
fn a_variable_that_is_not_set_is_a_mistake() {
    let file = File::new(&format!(
        "{GOOD}store = {{ redis = \"${{LIMITS_REDIS}}\" }}"
    ));
    file.run("check FILE", 1).says(&["LIMITS_REDIS"]);
    let variables = [("LIMITS_REDIS", "redis://:hunter2@127.0.0.1/")];
    let set = run_with(&format!("check {file}"), &variables).with_code(0);
    assert!(!format!("{set:?}").contains("hunter2"));
}

/// A file with these policies, `name: quota`.
fn quotas(policies: &[&str]) -> File {
    let policies = policies.iter().map(|policy| {
        let (name, quota) = policy.split_once(": ").expect("a quota");
        format!("[[policy]]\nname = {name:?}\nquota = {quota:?}\n")
    });
    File::new(&format!("version = 1\n{}", policies.collect::<String>()))
}

#[test]
fn a_diff_says_which_buckets_go_on() {
    let b = "b: 10 per second";
    let old = quotas(&["a: 10 per second", b]);
    let raised = quotas(&["a: 20 per second", b, "c: 10 per second"]);
    let grown = run(&format!("diff {old} {raised}")).with_code(0);
    let expected = "policy \"a\": kept; quota: \"10 per second\" -> \"20 per second\"\n\
                    policy \"c\": new\n";
    assert_eq!(grown.out, expected);
    assert_eq!(old.run("diff FILE FILE", 0).out, "nothing changes\n");
    let fields = json!([{ "before": "\"20 per second\"" }]);
    run(&format!("diff --json {raised} {old}"))
        .with_code(1)
        .has(&json!({ "changes": [
            { "effect": "kept", "fields": fields }, { "effect": "kept" }, { "effect": "gone" },
            { "effect": "kept" },
        ] }));
    let other = quotas(&["a: fixed window of 10 per second", b]);
    let other = run(&format!("diff {old} {other}")).with_code(1);
    let says = r#"policy "a": starts afresh"#;
    assert!(other.out.starts_with(says), "{other:?}");
    run(&format!("diff {old} {}", File::new(BAD))).with_code(2);
}

#[test]
fn several_files_are_checked_at_once() {
    let (right, wrong) = (quotas(&["a: 10 per second"]), File::new(BAD));
    let both = run(&format!("check {right} {wrong}")).with_code(1);
    both.says(&[": ok\n  policies     a\n", wrong.path()]);
    right.run("check FILE FILE", 0);
    let both = run(&format!("check --json {right} {wrong}")).with_code(1);
    both.has(&json!([{ "ok": true }, { "ok": false }]));
}

#[test]
fn the_schema_is_json() {
    let schema = run("schema").with_code(0).json();
    assert!(schema["$schema"].is_string(), "{schema}");
    assert_eq!(schema, run("schema --json").with_code(0).json());
}

/// A file of others has a name that would turn the direction of the line, and end it.
#[test]
fn a_path_cannot_control_a_terminal() {
    let hostile = "li\u{1b}[31m\u{202e}mits\n\u{2028}all: ok";
    let shown = "li\u{fffd}[31m\u{fffd}mits\u{fffd}\u{fffd}all: ok";
    for (text, code) in [(GOOD, 0), (BAD, 1)] {
        let file = File::new(text);
        let folder = std::path::Path::new(file.path())
            .parent()
            .expect("a folder");
        let other = folder.join(hostile);
        std::fs::copy(file.path(), &other).expect("a file");
        let other = other.display();
        let run = run(&format!("check \"{other}\"")).with_code(code);
        run.says(&[shown]);
        let is_plain = |line: &str| tower_throttle::plain_text(line) == line;
        assert!(run.out.lines().all(is_plain), "{run:?}");
        // Programs read the name as it is.
        let json = super::run::run(&format!("check --json \"{other}\"")).with_code(code);
        assert!(
            json.out
                .trim_end()
                .chars()
                .all(|one| is_plain(&one.to_string()))
        );
        if code == 1 {
            assert_eq!(json.json()[0]["problems"][0]["file"], other.to_string());
        }
    }
    let absent = run(&format!("check \"{hostile}\"")).with_code(2);
    absent.says(&[shown]);
    assert!(!absent.err.contains(['\u{1b}', '\u{202e}', '\u{2028}']));
}
