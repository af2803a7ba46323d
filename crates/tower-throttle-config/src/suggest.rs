//! "Did you mean": the known word that is closest to a misspelled one.

use strsim::osa_distance;

/// Words beyond this length are not compared, so that no text takes long.
const LONGEST: usize = 64;

/// Beyond so many, the words are counted and not listed.
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
/// of them. `they_are` is "the units are", say.
pub(crate) fn proposal(word: &str, among: &[&str], they_are: &str) -> String {
    match closest(word, among.iter().copied()) {
        Some(known) => format!("; did you mean {known:?}?"),
        None if among.is_empty() => String::new(),
        None => format!("; {they_are} {}", listed(among)),
    }
}

fn listed(words: &[&str]) -> String {
    let quoted = words.iter().take(MOST_LISTED);
    let quoted: Vec<String> = quoted.map(|word| format!("{word:?}")).collect();
    let more = words.len() - quoted.len();
    match quoted.split_last() {
        _ if more > 0 => format!("{} and {more} more", quoted.join(", ")),
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => quoted.concat(),
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
        let units = |among: &[&str]| proposal("fortnight", among, "the units are");
        assert_eq!(units(&[]), "");
        assert_eq!(units(&["ms"]), "; the units are \"ms\"");
        assert_eq!(
            units(&["ms", "hour"]),
            "; the units are \"ms\" and \"hour\""
        );
        let many: Vec<_> = (0..1_000).map(|number| format!("p{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let listed = units(&many);
        let ends = listed.starts_with("; the units are \"p0\", ");
        assert!(ends && listed.ends_with("\"p31\" and 968 more"), "{listed}");
    }
}
