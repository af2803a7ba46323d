//! What holds for any text, and for the text of any quota.

use proptest::{collection::vec, prelude::*, sample::select};

use super::forms::{any_form, loosely};
use crate::support::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// The text gives the builder's quota, or the builder's error.
    #[test]
    fn a_text_gives_what_the_builder_gives((built, text) in any_form().prop_flat_map(loosely)) {
        let read: Result<Quota, _> = text.parse();
        prop_assert_eq!(&read, &built, "{:?}", text);
        prop_assert_eq!(format!("{read:?}"), format!("{built:?}"));
        prop_assert_eq!(Quota::try_from(text.as_str()), built);
    }

    /// What a quota writes is read as that quota, and written as the same text.
    #[test]
    fn every_quota_is_read_from_the_text_that_it_writes(form in any_form()) {
        let Ok(quota) = form.built else {
            return Ok(());
        };
        let text = quota.to_string();
        let read: Quota = text.parse().expect("a text that a quota wrote");
        prop_assert_eq!(read, quota, "{}", text);
        prop_assert_eq!(read.to_string(), text);
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

/// Any characters, and words of the grammar in any order.
fn any_text() -> impl Strategy<Value = String> {
    let words = "token leaky bucket fixed sliding window log of per at once without refill second \
        calendar month week burst initial capacity queue aligned spread max entries lifetime penalty \
        after strikes within lasting doubling up to forgiven prolonging minutes ms 1 10 1_000 1.5 , , , \
        - _ / é 🦀 18446744073709551616";
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
