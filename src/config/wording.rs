//! What builders say, in the words of a file.

use crate::ConfigError;

/// Words of Rust in the messages of builders, and what says the same in a file.
const WORDS: &[(&str, &str)] = &[
    ("Limiter", "limiter"),
    ("RateLimitLayer", "layer"),
    ("HeaderFormat::Draft10", "headers = \"draft10\""),
    ("key::peer()", "peer"),
    (
        "Lists::client_address(key::client_ip(..))",
        "client_address",
    ),
    ("policy(..)", "[[policy]]"),
    ("shadow()", "mode = \"shadow\""),
    ("enforce_for(..)", "mode = { enforce_for = .. }"),
];

/// Returns the message of an error, as a file would say it: `` `cost` `` for `` `cost(30)` ``. The
/// name of the policy is left out, which is in the path.
pub(super) fn in_a_file(error: &ConfigError) -> String {
    let error = match error {
        ConfigError::InPolicy { error, .. } => error,
        error => error,
    };
    if let ConfigError::QuotaText { text, reason, .. } = error {
        return format!("{text:?}: {reason}");
    }
    let message = error.to_string();
    let parts = message.split('`').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => part,
        _ => word(part),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Returns what says the same in a file as a piece of code.
fn word(code: &str) -> &str {
    if let Some((_, file)) = WORDS.iter().find(|(known, _)| *known == code) {
        return file;
    }
    match code.split_once('(') {
        Some(("Percent::of_keys", _)) => "enforce_for",
        Some((name, _)) => name.rsplit("::").next().unwrap_or(name),
        None => code,
    }
}
