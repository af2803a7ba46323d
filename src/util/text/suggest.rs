//! "Did you mean": the known word that is closest to a misspelled one.

/// Words beyond this length are not compared, so that no text takes long.
const LONGEST: usize = 64;

/// The most words that are listed. Beyond that, they are only counted.
const MOST_LISTED: usize = 32;

/// Returns the word that was probably meant, if one is close. Case does not count.
pub(crate) fn closest<'w>(word: &str, among: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let word: Vec<char> = word.to_lowercase().chars().take(LONGEST + 1).collect();
    if word.len() > LONGEST {
        return None;
    }
    let close = among.into_iter().filter_map(|known| {
        let letters: Vec<char> = known.to_lowercase().chars().collect();
        let is_start = word.len() >= 3 && letters.starts_with(&word);
        let changes = if is_start {
            1
        } else {
            changes(&word, &letters)
        };
        // A third of the letters may differ: one in "key", and none in "ms".
        let most = word.len().max(letters.len()) / 3;
        (changes <= most).then_some((changes, known))
    });
    let (_, known) = close.min_by_key(|(changes, _)| *changes)?;
    Some(known)
}

/// Returns the end of a message about an unknown word where one of these is to be chosen.
pub(crate) fn choice(word: &str, among: &[&str]) -> String {
    match closest(word, among.iter().copied()) {
        Some(known) => format!("; did you mean {known:?}?"),
        None if among.is_empty() => "; drop it".to_owned(),
        None => format!("; use {}", listed(among)),
    }
}

fn listed(words: &[&str]) -> String {
    if let Some((first, others)) = words.split_at_checked(MOST_LISTED) {
        if !others.is_empty() {
            let quoted: Vec<String> = first.iter().map(|word| format!("{word:?}")).collect();
            return format!("{} and {} more", quoted.join(", "), others.len());
        }
    }
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("{} or {last}", others.join(", "))
        }
        _ => quoted.concat(),
    }
}

/// Returns how many letters were inserted, left out or replaced. Two that changed places are one.
fn changes(mut word: &[char], mut known: &[char]) -> usize {
    while let ([first, word_rest @ ..], [other, known_rest @ ..]) = (word, known) {
        if first != other {
            break;
        }
        (word, known) = (word_rest, known_rest);
    }
    while let ([word_rest @ .., last], [known_rest @ .., other]) = (word, known) {
        if last != other {
            break;
        }
        (word, known) = (word_rest, known_rest);
    }
    match (word, known) {
        ([a, b], [c, d]) if a == d && b == c => 1,
        _ => levenshtein(word, known),
    }
}

/// Returns the Levenshtein distance. `above` has the distances of each start of `known` from the
/// letters of `word` so far.
fn levenshtein(word: &[char], known: &[char]) -> usize {
    let mut above: Vec<usize> = (1..=known.len()).collect();
    for (place, letter) in word.iter().enumerate() {
        let (mut diagonal, mut left) = (place, place + 1);
        for (cell, other) in above.iter_mut().zip(known) {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
    }
    above.last().copied().unwrap_or(word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: [&str; 4] = ["ms", "second", "minute", "hour"];

    #[test]
    fn a_misspelled_word_has_the_closest_one_as_its_proposal() {
        for (word, known) in [
            ("secnd", Some("second")),
            ("secodn", Some("second")),
            ("SECOND", Some("second")),
            ("sec", Some("second")),
            ("mintue", Some("minute")),
            ("minnutes", Some("minute")),
            ("hor", Some("hour")),
            ("ohur", Some("hour")),
            ("m", None),
            ("s", None),
            ("fortnight", None),
            ("", None),
        ] {
            assert_eq!(closest(word, UNITS), known, "{word}");
        }
        assert_eq!(closest("kye", ["quota", "key"]), Some("key"));
        assert_eq!(closest("keys", ["quota", "key"]), Some("key"));
        assert_eq!(closest("", [""]), Some(""));
        assert_eq!(closest(&"s".repeat(1 << 20), UNITS), None);
    }

    #[test]
    fn changes_are_counted() {
        for (word, known, count) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
            ("saturday", "sunday", 3),
            ("xaby", "xbay", 1),
        ] {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(changes(&letters(word), &letters(known)), count, "{word}");
        }
    }

    #[test]
    fn a_word_that_is_like_none_has_all_as_its_proposal() {
        let many: Vec<_> = (0..1_000).map(|number| format!("p{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let listed = choice("fortnight", &many);
        assert!(
            listed.starts_with("; use \"p0\", ") && listed.ends_with("\"p31\" and 968 more"),
            "{listed}"
        );
        for (known, proposal) in [
            (
                &UNITS[..],
                "; use \"ms\", \"second\", \"minute\" or \"hour\"",
            ),
            (&["ms"], "; use \"ms\""),
            (&[], "; drop it"),
            (&["ms", "fort-night"], "; did you mean \"fort-night\"?"),
        ] {
            assert_eq!(choice("fortnight", known), proposal);
        }
    }
}
