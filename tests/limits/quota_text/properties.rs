//! What holds for any text, and for the text of any quota.

use proptest::{collection::vec, prelude::*, sample::select};

use super::UNITS;
use crate::support::plans::{Algorithm, USED_UP, any_plan, any_scale_ms};
use crate::support::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// What a quota writes is read as that quota, however a person writes it, and written as the
    /// same text.
    #[test]
    fn every_quota_is_read_from_the_text_that_it_writes(seed: u64) {
        let mut random = Random::from_seed(seed);
        let algorithm = random.one_of(&[&USED_UP[..], &[Algorithm::Concurrency, Algorithm::Penalty]].concat());
        let scale_ms = any_scale_ms(&mut random, algorithm);
        let quota = any_plan(&mut random, algorithm, scale_ms).quota();
        let text = quota.to_string();
        let read: Quota = text.parse().expect("a text that a quota wrote");
        prop_assert_eq!(read, quota, "{}", text);
        prop_assert_eq!(format!("{:?}", read), format!("{:?}", quota));
        prop_assert_eq!(read.to_string(), &*text);
        let loose = loosely(&text, &mut random);
        prop_assert_eq!(loose.parse(), Ok(quota), "{:?}", loose);
    }

    #[test]
    fn no_text_panics_and_each_mistake_is_at_a_word(text in any_text()) {
        match text.parse::<Quota>() {
            Ok(quota) => {
                let again: Quota = quota.to_string().parse().expect("a text that a quota wrote");
                prop_assert_eq!(again, quota);
            }
            Err(error) if error.code() == "quota-text" => {
                let at = error.span().expect("a wrong word");
                prop_assert!(text.get(at).is_some());
                let message = error.to_string();
                let reason = message.strip_prefix(&format!("quota {text:?}: "));
                prop_assert!(reason.is_some_and(|reason| reason.contains("; ")), "{}", message);
            }
            Err(error) => prop_assert_eq!(error.span(), None),
        }
    }
}

/// Writes the text of a quota as a person may: options in any order, with or without commas, any space,
/// any case, any name of a unit.
fn loosely(text: &str, random: &mut Random) -> String {
    let text = text.replace(" within ", ", within ");
    let mut parts: Vec<_> = text.split(", ").collect();
    for place in 2..parts.len() {
        parts.swap(place, random.between(1, place as u64) as usize);
    }
    let comma = random.one_of(&[" , ", " "]);
    let mut words: Vec<_> = parts.join(comma).split(' ').map(str::to_owned).collect();
    for place in 1..words.len() {
        let (before, word) = words.split_at_mut(place);
        let is_unit = |names: &&str| names.split(' ').any(|name| name == word[0]);
        let names = UNITS.iter().map(|(names, _)| *names).find(is_unit);
        if let Some(names) = names.filter(|_| before[place - 1] != "calendar") {
            let names: Vec<_> = names.split(' ').collect();
            word[0] = random.one_of(&names).to_owned();
        }
        let digits = word[0]
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(String::from_utf8_lossy);
        if word[0].bytes().all(|byte| byte.is_ascii_digit()) && random.percent(50) {
            word[0] = digits.collect::<Vec<_>>().join("_");
        }
    }
    let per = random.one_of(&[" per ", " / ", " requests per "]);
    let text: Vec<char> = words.join(" ").replace(" per ", per).chars().collect();
    let mut loose = String::new();
    for (place, letter) in text.iter().enumerate() {
        match letter {
            ' ' if text[place - 1].is_alphabetic() && text[place + 1].is_alphabetic() => {
                loose.push_str(random.one_of(&[" ", "  ", "\t", "\u{a0}", "_", "-"]));
            }
            ' ' => loose.push_str(random.one_of(&["", " ", "\r\n"])),
            _ if random.percent(50) => loose.push(letter.to_ascii_uppercase()),
            _ => loose.push(*letter),
        }
    }
    loose
}

/// Any characters, and words of the grammar in any order.
fn any_text() -> impl Strategy<Value = String> {
    let words = "token leaky bucket fixed sliding window log of per at once without refill second \
        calendar month week burst initial capacity queue aligned utc offset + : 02 spread max entries lifetime penalty \
        after strikes within lasting doubling up to forgiven prolonging minutes ms 1 10 1_000 1.5 , , , \
        request requests - _ / é 🦀 18446744073709551616";
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    prop_oneof![
        any::<String>(),
        vec(any::<u8>(), 0..60).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        vec((select(words), any::<bool>()), 0..16).prop_map(|words| {
            let spaced = words.into_iter().map(|(word, is_apart)| match is_apart {
                true => format!("{word} "),
                false => word.to_owned(),
            });
            spaced.collect()
        }),
    ]
}
