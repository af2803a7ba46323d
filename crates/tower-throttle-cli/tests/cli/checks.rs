//! `check`, `diff` and `schema`.

use serde_json::json;

use crate::run::{File, run, run_with};

const GOOD: &str = r#"
version = 1

[[policy]]
name = "burst"
quota = "10 per second, burst 20"
key = ["reader:tenant", "header:x-api-key"]

[[policy]]
name = "plan"
quota = { by = "plan", tiers = { free = "5 per day", paid = "50 per day" }, otherwise = "free" }
key = "header:x-api-key"
when = { reader = "internal" }

[layer.api]
[limiter.jobs]
policies = ["burst"]
"#;

const BAD: &str = r#"version = 1
[[policy]]
name = "burst"
quota = 10
keys = "peer"
"#;

#[test]
fn a_right_file_is_counted_and_its_readers_are_listed() {
    let file = File::new(GOOD);
    let run = run(&["check", file.path()]).with_code(0);
    let expected = format!(
        "{}: ok\n  policies     burst, plan\n  layers       api\n  limiters     jobs\n  \
         needs        key:tenant, quota:plan, when:internal\n",
        file.path()
    );
    assert_eq!((run.out.as_str(), run.err.as_str()), (&*expected, ""));

    let json = crate::run::run(&["check", "--json", file.path()])
        .with_code(0)
        .json();
    let json = &json[0];
    assert_eq!(json["ok"], true);
    assert_eq!(json["policies"], json!(["burst", "plan"]));
    assert_eq!(json["layers"], json!(["api"]));
    assert_eq!(json["limiters"], json!(["jobs"]));
    assert_eq!(json["needs"][0], "key:tenant");
}

#[test]
fn all_mistakes_are_reported_at_once_with_their_places() {
    let file = File::new(BAD);
    let run = run(&["check", file.path()]).with_code(1);
    let lines: Vec<_> = run.out.lines().collect();
    let at = |line: &str, place: &str| line.starts_with(&format!("{}:{place}: ", file.path()));
    assert!(
        at(lines[0], "4:9") && lines[0].contains("wrong-type"),
        "{run:?}"
    );
    assert!(
        at(lines[1], "5:1") && lines[1].contains(r#"did you mean "key"?"#),
        "{run:?}"
    );
    assert_eq!((lines.len(), run.err.as_str()), (2, ""));

    let quotas = File::new(
        &GOOD
            .replace("per second", "per secnd")
            .replace("5 per day", "5 per dya"),
    );
    let quotas = crate::run::run(&["check", quotas.path()]).with_code(1);
    assert!(
        quotas.out.contains(r#"did you mean "second"?"#),
        "{quotas:?}"
    );
    assert_eq!(quotas.out.lines().count(), 2, "{quotas:?}");

    let json = crate::run::run(&["--json", "check", file.path()])
        .with_code(1)
        .json();
    assert_eq!(json[0]["ok"], false);
    let problem = &json[0]["problems"][1];
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&json!(5), &json!(1))
    );
    assert_eq!(
        (&problem["code"], &problem["file"]),
        (&json!("unknown-field"), &json!(file.path()))
    );
}

#[test]
fn readers_are_compared_with_those_that_are_registered() {
    let file = File::new(GOOD);
    let all = "key:tenant,quota:plan,when:internal";
    run(&["check", file.path(), "--readers", all]).with_code(0);
    let missing = run(&["check", file.path(), "--readers", "key:tennant,quota:plan"]).with_code(1);
    assert!(missing.out.contains("unknown-reader"), "{missing:?}");
    assert_eq!(missing.out.lines().count(), 2, "{missing:?}");
    let wrong = run(&["check", file.path(), "--readers", "plan"]).with_code(2);
    assert!(wrong.err.contains("write KIND:NAME"), "{wrong:?}");
}

#[test]
fn a_variable_that_is_not_set_is_a_mistake() {
    let text = "version = 1\n[store]\nredis = \"${LIMITS_REDIS}\"\n\
                [[policy]]\nname = \"a\"\nquota = \"1 per day\"\n";
    let file = File::new(text);
    let unset = run(&["check", file.path()]).with_code(1);
    assert!(unset.out.contains("LIMITS_REDIS"), "{unset:?}");
    let variables = [("LIMITS_REDIS", "redis://:hunter2@127.0.0.1/")];
    let set = run_with(&["check", file.path()], &variables).with_code(0);
    assert!(!format!("{set:?}").contains("hunter2"));
}

#[test]
fn a_diff_says_which_buckets_go_on() {
    let old = File::new(
        "version = 1\n[[policy]]\nname = \"a\"\nquota = \"10 per second\"\n\
         [[policy]]\nname = \"b\"\nquota = \"10 per second\"\n",
    );
    let raised = File::new(
        "version = 1\n[[policy]]\nname = \"a\"\nquota = \"20 per second\"\n\
         [[policy]]\nname = \"b\"\nquota = \"10 per second\"\n\
         [[policy]]\nname = \"c\"\nquota = \"10 per second\"\n",
    );
    let grown = run(&["diff", old.path(), raised.path()]).with_code(0);
    let lines: Vec<_> = grown.out.lines().collect();
    assert_eq!(
        lines,
        [
            r#"policy "a": kept; quota: "10 per second" -> "20 per second""#,
            r#"policy "c": new"#,
        ]
    );
    let same = run(&["diff", old.path(), old.path()]).with_code(0);
    assert_eq!(same.out, "nothing changes\n");
    let shrunk = run(&["diff", "--json", raised.path(), old.path()])
        .with_code(1)
        .json();
    let effects = shrunk["changes"].as_array().expect("a list");
    let effects: Vec<_> = effects
        .iter()
        .map(|change| change["effect"].clone())
        .collect();
    assert_eq!(effects, ["kept", "kept", "gone", "kept"]);
    let field = &shrunk["changes"][0]["fields"][0];
    assert_eq!(field["before"], r#""20 per second""#);

    let other = File::new(
        "version = 1\n[[policy]]\nname = \"a\"\nquota = \"fixed window of 10 per second\"\n\
         [[policy]]\nname = \"b\"\nquota = \"10 per second\"\n",
    );
    let other = run(&["diff", old.path(), other.path()]).with_code(1);
    assert!(
        other.out.starts_with(r#"policy "a": starts afresh"#),
        "{other:?}"
    );
    run(&["diff", old.path(), File::new(BAD).path()]).with_code(2);
}

#[test]
fn several_files_are_checked_at_once() {
    let right = File::new("version = 1\n[[policy]]\nname = \"a\"\nquota = \"10 per second\"\n");
    let wrong = File::new(BAD);
    let both = run(&["check", right.path(), wrong.path()]).with_code(1);
    assert!(both.out.contains(": ok\n  policies     a\n"), "{both:?}");
    assert!(both.out.contains(wrong.path()), "{both:?}");
    run(&["check", right.path(), right.path()]).with_code(0);
    let json = run(&["check", "--json", right.path(), wrong.path()]);
    let json = json.with_code(1).json();
    assert_eq!(
        (&json[0]["ok"], &json[1]["ok"]),
        (&true.into(), &false.into())
    );
}

#[test]
fn the_schema_is_json() {
    let schema = run(&["schema"]).with_code(0).json();
    assert!(schema["$schema"].is_string(), "{schema}");
    let same = run(&["schema", "--json"]).with_code(0).json();
    assert_eq!(schema, same);
}
