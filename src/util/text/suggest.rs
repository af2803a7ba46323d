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
    let shown = words.iter().take(MOST_LISTED);
    let mut shown: Vec<String> = shown.map(|word| format!("{word:?}")).collect();
    let (joint, last) = match words.len().saturating_sub(MOST_LISTED) {
        0 => ("or", shown.pop().unwrap_or_default()),
        more => ("and", format!("{more} more")),
    };
    match shown.is_empty() {
        true => last,
        false => format!("{} {joint} {last}", shown.join(", ")),
    }
}

/// Returns how many letters were inserted, left out or replaced. Two that changed places are one.
#[expect(clippy::indexing_slicing, reason = "each place is within its word")]
fn changes(word: &[char], known: &[char]) -> usize {
    // For each start of `word`, the changes that make it each start of `known`.
    let mut rows: Vec<Vec<usize>> = vec![(0..=known.len()).collect()];
    for (place, letter) in word.iter().enumerate() {
        let above = &rows[place];
        let mut row = vec![place + 1];
        for (at, other) in known.iter().enumerate() {
            let replaced = above[at] + usize::from(letter != other);
            let mut least = replaced.min(above[at + 1] + 1).min(row[at] + 1);
            if place > 0 && at > 0 && word[place - 1] == *other && *letter == known[at - 1] {
                least = least.min(rows[place - 1][at - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[word.len()][known.len()]
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
