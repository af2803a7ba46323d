//! "Did you mean": the known word that is closest to a misspelled one.

use std::num::NonZero;

use strsim::osa_distance;

/// Words beyond this length are not compared, so that no text takes long.
const LONGEST: usize = 64;

/// The most words that are listed. Beyond that, they are only counted.
const MOST_LISTED: usize = 32;

/// Returns the word that was probably meant, if one is close. Case does not count.
pub(crate) fn closest<'w>(word: &str, among: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let word = word.to_lowercase();
    let letters = word.chars().count();
    if letters > LONGEST {
        return None;
    }
    let close = among.into_iter().filter_map(|known| {
        let lower = known.to_lowercase();
        let changes = match letters >= 3 && lower.starts_with(&word) {
            true => 1,
            false => osa_distance(&word, &lower),
        };
        // A third of the letters may differ: one in "key", and none in "ms".
        let most = letters.max(lower.chars().count()) / 3;
        (changes <= most).then_some((changes, known))
    });
    let (_, known) = close.min_by_key(|(changes, _)| *changes)?;
    Some(known)
}

/// Returns the end of a message about an unknown word: the closest word if there is one, else all
/// of them.
pub(crate) fn proposal(word: &str, among: &[&str]) -> String {
    match closest(word, among.iter().copied()) {
        Some(known) => format!("; did you mean {known:?}?"),
        None if among.is_empty() => String::new(),
        None => format!("; use {}", quoted(among.iter().copied())),
    }
}

/// Returns the code and the message for a policy that the file does not have.
pub(crate) fn unknown_policy(name: &str, proposal: &str) -> (&'static str, String) {
    ("unknown-policy", format!("no policy {name:?}{proposal}"))
}

/// Lists alternatives in quotes: `"a", "b" or "c"`.
pub(crate) fn quoted<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let mut words = words.map(|word| format!("{word:?}"));
    let mut listed: Vec<_> = words.by_ref().take(MOST_LISTED).collect();
    let more = words.count();
    listed.extend((more > 0).then(|| format!("{more} more")));
    in_words(listed)
}

/// Joins alternatives: `a, b or c`.
pub(crate) fn in_words(mut alternatives: Vec<String>) -> String {
    match alternatives.pop() {
        Some(last) if !alternatives.is_empty() => format!("{} or {last}", alternatives.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// Splits a word from its argument: `header:` from `NAME`.
fn split(word: &str) -> (&str, &str) {
    word.split_at(word.rfind([':', ' ']).map_or(word.len(), |end| end + 1))
}

/// Returns whether a text is this word, with an argument if the word has one.
pub(crate) fn is_word(word: &str, text: &str) -> bool {
    match (split(word), text.strip_prefix(split(word).0)) {
        ((_, ""), _) => word == text,
        ((_, "N"), Some(number)) => number.parse::<NonZero<u32>>().is_ok(),
        (_, argument) => argument.is_some_and(|argument| !argument.is_empty()),
    }
}

/// Returns the word that a text may be meant for.
pub(crate) fn intended(words: &[&str], text: &str) -> String {
    let (start, rest) = split(text);
    let starts = words.iter().map(|word| split(word).0);
    let near = closest(
        start,
        starts.map(|start| start.trim_end_matches([':', ' '])),
    );
    let near = near.and_then(|near| words.iter().find(|word| word.starts_with(near)));
    match near.map(|word| (split(word), word)) {
        None => format!("use {}", quoted(words.iter().copied())),
        Some(((start, "NAME"), _)) if !rest.is_empty() => {
            format!("did you mean \"{start}{rest}\"?")
        }
        Some((_, word)) => format!("did you mean {word:?}?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_word_has_the_closest_one_as_its_proposal() {
        const UNITS: [&str; 4] = ["ms", "second", "minute", "hour"];
        for (word, known) in [
            ("secnd", Some("second")),
            ("secodn", Some("second")),
            ("SECOND", Some("second")),
            ("sec", Some("second")),
            ("mintue", Some("minute")),
            ("ohur", Some("hour")),
            ("m", None),
            ("fortnight", None),
            ("", None),
        ] {
            assert_eq!(closest(word, UNITS), known, "{word}");
        }
        assert_eq!(closest("kye", ["quota", "key"]), Some("key"));
        assert_eq!(closest(&"s".repeat(1 << 20), UNITS), None);
    }

    #[test]
    fn a_word_that_is_like_none_has_all_as_its_proposal() {
        let units = |among: &[&str]| proposal("fortnight", among);
        assert_eq!(units(&[]), "");
        assert_eq!(units(&["ms"]), "; use \"ms\"");
        assert_eq!(units(&["ms", "hour"]), "; use \"ms\" or \"hour\"");
        let many: Vec<_> = (0..1_000).map(|number| format!("p{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let listed = units(&many);
        let ends = listed.starts_with("; use \"p0\", ");
        assert!(ends && listed.ends_with("\"p31\" or 968 more"), "{listed}");
    }
}
