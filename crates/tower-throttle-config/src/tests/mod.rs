pub(crate) mod log;
pub(crate) mod reach;
mod reference;
pub(crate) mod repository;

use std::time::Duration;

use super::{Config, variables::expand, wording};
use tower_throttle::{
    HeaderFormat, Limiter, Lists, Policy, RateLimitLayer, RedisStore, TokenBucket,
    key::{self, KeyExtractor},
};

#[test]
fn the_text_of_very_many_mistakes_is_bounded() {
    let text = format!("version = 1\n{}", "[[policy]]\n".repeat(300));
    let text = Config::from_toml(&text).expect_err("mistakes").to_string();
    assert_eq!(text.lines().count(), 101);
    assert_eq!(text.lines().last(), Some("and 500 more"));
}

#[test]
fn variables_of_the_environment_are_put_into_a_text() {
    let find = |name: &str| match name {
        "HOST" => Some("10.0.0.7".to_owned()),
        "EMPTY" => Some(String::new()),
        "NESTED" => Some("${HOST}".to_owned()),
        _ => None,
    };
    // A value is not looked into.
    let texts = "redis://127.0.0.1/ = redis://127.0.0.1/
        ${HOST} = 10.0.0.7
        redis://${HOST}:6379/${EMPTY} = redis://10.0.0.7:6379/
        ${HOST}${HOST} = 10.0.0.710.0.0.7
        $HOST $ { } = $HOST $ { }
        $${HOST} = $10.0.0.7
        ${NESTED} = ${HOST}
        ${HOST = `${` without a `}`; write `${NAME}`
        ${} = `${..}` does not name a variable; write `${NAME}`, with letters, digits and `_`
        ${HOST}${MISSING} = the variable MISSING of the environment is not set; set it";
    for line in texts.lines() {
        let (text, expected) = line.trim().split_once(" = ").expect("a text");
        let found = expand(text, find);
        let found = found.unwrap_or_else(|(_, message)| message);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn no_value_of_the_file_is_in_the_debug_form() {
    let text = "version = 1\n[store]\nredis = \"redis://:hunter2@10.0.0.7/\"\nsecret = \"hunter2\"\n\
                [[policy]]\nname = \"burst\"\nquota = \"10 per second\"\n[layer.api]\n\
                partition_key_secret = \"hunter2\"\n";
    let config = Config::from_toml(text).expect("limits");
    let shown = format!("{config:?}");
    let is_safe = shown.contains("burst") && !shown.contains("hunter2");
    assert!(is_safe, "{shown}");
}

#[test]
fn what_builders_say_of_code_is_in_the_words_of_a_file() {
    let policy = || Policy::new("burst", TokenBucket::per_second(10).burst(20));
    let limiter = |policy| Limiter::builder().policy(policy).build().err();
    let lists = Lists::new().allow_ips(["10.0.0.0/8"]).expect("a list");
    let layer = RateLimitLayer::builder().headers(HeaderFormat::Draft7);
    let layer = layer.partition_key_secret(b"secret");
    let redis = RedisStore::builder().timeout(Duration::ZERO);
    for (error, message) in [
        (
            limiter(policy().cost(30)),
            "`cost` exceeds the 20 units that the quota can grant at once; lower the cost, or raise the quota",
        ),
        (
            limiter(policy().enforce_for_percent(0)),
            "`mode = { enforce_for = .. }` is outside 1 to 100; use `mode = \"shadow\"` to enforce the policy for no caller",
        ),
        (
            layer.build().err(),
            "`partition_key_secret` with header fields that have no place for it; use `headers = \"draft10\"`, or drop `partition_key_secret`",
        ),
        (
            lists.validate().err(),
            "addresses are listed, and nothing reads the client's; name a reader with `client_address`",
        ),
        (
            redis.validate("redis://127.0.0.1/").err(),
            "`timeout` is zero or empty; set a value, or leave it out for the default",
        ),
    ] {
        assert_eq!(wording::in_a_file(&error.expect(message)), message);
    }
}

#[test]
fn what_the_user_wrote_stays_as_it_is() {
    for name in ["a`cost(0)`b", "`cost(0)`", "\"`cost(0)`\\", "` ", "\""] {
        let error = key::header(name).validate().expect_err("no name");
        assert_eq!(wording::in_a_file(&error), error.to_string());
    }
}

/// Whatever stands between backquotes in the messages of builders.
#[test]
fn no_message_of_a_builder_has_code_in_a_file() {
    let Some(mut sources) = repository::sources() else {
        return;
    };
    sources.retain(|source| source.contains("ConfigError::new("));
    let codes: Vec<_> = sources
        .iter()
        .flat_map(|source| source.lines())
        .filter(|line| line.contains('"') && !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    assert!(codes.len() > 40, "{codes:?}");
    for code in codes {
        let word = wording::word(code);
        let is_code = ["(", ")", "::"].iter().any(|part| word.contains(part));
        assert!(!is_code, "{code}: {word}");
    }
}

#[test]
fn every_code_that_has_a_field_is_on_the_page_of_errors() {
    let Some(page) = repository::read("docs/errors.md") else {
        return;
    };
    let source = include_str!("../builders/blame.rs");
    let texts = source.split('"').skip(1).step_by(2);
    let codes: Vec<_> = texts.filter(|text| text.contains('-')).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        assert!(page.contains(&format!("\n| `{code}` |")), "{code}");
    }
}
