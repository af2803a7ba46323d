//! The options of a quota: what follows the commas.

use std::time::Duration;

use crate::{
    ConfigError, Quota,
    util::text::{Mistake, Words, choice, quoted},
};

/// The quota that a builder made of a text, or what is wrong with the text.
pub(super) type Built = Result<Result<Quota, ConfigError>, Mistake>;

/// How a text sets an option of a builder.
pub(super) enum Setter<B> {
    Flag(fn(B) -> B),
    Number(fn(B, u64) -> B),
    Time(fn(B, Duration) -> B),
}

/// Takes all options, up to the end of the text, and builds the quota. `whose` is "a token bucket",
/// for example.
pub(super) fn build<B>(
    words: &mut Words<'_>,
    whose: &str,
    mut builder: B,
    allowed: &[(&str, Setter<B>)],
) -> Built
where
    Quota: TryFrom<B, Error = ConfigError>,
{
    let mut set: Vec<&str> = Vec::new();
    while !words.peek().is_end() {
        let comma = words.peek();
        // It reads aloud without a comma: "after 20 strikes within 10 minutes".
        let needs_comma = !set.is_empty()
            || !comma.is("within")
            || !allowed.iter().any(|(name, _)| comma.is(name));
        if needs_comma && !words.take(",") {
            let reason = format!("{comma} follows without a comma; add one, or drop it");
            return Err(Mistake::new(comma.range(), reason));
        }
        let first = words.peek();
        if first.is_end() {
            let reason = "nothing follows the last comma; drop it";
            return Err(Mistake::new(comma.range(), reason));
        }
        let Some((name, setter)) = allowed.iter().find(|(name, _)| words.take(name)) else {
            let names: Vec<_> = allowed.iter().map(|(known, _)| *known).collect();
            return Err(unknown(words, whose, &names));
        };
        // A bucket has one size.
        let excludes = |other: &&&str| {
            *other == name
                || matches!(
                    (**other, *name),
                    ("capacity", "queue") | ("queue", "capacity")
                )
        };
        if let Some(other) = set.iter().find(excludes) {
            let reason = match other == name {
                true => format!("{name:?} is set twice; drop one"),
                false => format!("{name:?} beside {other:?}; drop one"),
            };
            return Err(Mistake::new(first.range(), reason));
        }
        builder = match setter {
            Setter::Flag(set) => set(builder),
            Setter::Number(set) => set(builder, words.number()?),
            Setter::Time(set) => set(builder, words.duration()?),
        };
        set.push(name);
    }
    Ok(builder.try_into())
}

/// Returns what is wrong with an option that is not allowed.
fn unknown(words: &mut Words<'_>, whose: &str, allowed: &[&str]) -> Mistake {
    let first = words.peek();
    let (name, at) = words.take_words(&[]);
    let reason = if first.is_number() {
        format!("{first} is no option; write large numbers without commas, as in \"1_000\"")
    } else if name.is_empty() {
        format!("{first} is no option; drop it")
    } else {
        let (name, proposal) = (quoted(&name), choice(&name, allowed));
        format!("{whose} has no option {name}{proposal}")
    };
    Mistake::new(at, reason)
}
