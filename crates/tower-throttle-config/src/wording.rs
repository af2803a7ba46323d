//! Rewrites messages of builders in the words of a file.

use tower_throttle::ConfigError;

/// Names of Rust in the messages of builders that have another form in a file.
const NAMES: &[(&str, &str)] = &[
    ("HeaderFormat::Draft10", "headers = \"draft10\""),
    ("Limiter", "limiter"),
    ("RateLimitLayer", "layer"),
    ("RedisStore::builder", "[store]"),
    ("TokenBucket::without_refill", "without refill"),
    ("cost(0)", "cost = 0"),
    ("cost_by", "cost"),
    ("credentials", "password_file"),
    ("doubling_up_to", "doubling up to"),
    ("enforce_for_percent", "mode = { enforce_for = .. }"),
    ("forgiven_after", "forgiven after"),
    ("max_entries", "max entries"),
    ("policy", "[[policy]]"),
    ("quota_by", "quota"),
    ("shadow", "mode = \"shadow\""),
    ("share_of", "share of"),
    ("utc_offset_minutes", "utc offset"),
];

/// Returns the message of an error in the words of a file: `` `cost` `` for `` `cost(30)` ``. The
/// name of the policy and the word `quota` are left out, which are in the path.
pub(super) fn in_a_file(error: &ConfigError) -> String {
    let message = error.message();
    in_words(message.strip_prefix("quota ").unwrap_or(message))
}

/// Rewrites each piece of code, but nothing in quotes: that is a text of the user.
fn in_words(message: &str) -> String {
    let (mut is_code, mut is_quoted) = (true, false);
    let pieces = message.split('`').map(|piece| {
        is_code = !is_code && !is_quoted;
        let quotes = piece.matches('"').count() - piece.matches("\\\"").count();
        is_quoted ^= quotes % 2 == 1;
        if is_code { word(piece) } else { piece }
    });
    pieces.collect::<Vec<_>>().join("`")
}

/// Returns the counterpart in a file of a piece of code, without its arguments.
pub(super) fn word(code: &str) -> &str {
    let name = code.split('(').next().unwrap_or(code);
    let is_known = |(known, _): &&(&str, &str)| *known == code || *known == name;
    match NAMES.iter().find(is_known) {
        Some((_, file)) => file,
        None => name.rsplit("::").next().unwrap_or(name),
    }
}
