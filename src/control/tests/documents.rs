//! The text of a document.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::{fingerprint, quota};
use crate::{
    List,
    control::{
        Action, Entry, Mode,
        document::{Document, HEAD_BYTES, MAX_BYTES, MAX_ENTRIES, Unreadable, head, head_version},
        lineage::Lineages,
    },
};

const MARK: &str = "0123456789abcdef";

fn entry(action: Action) -> Entry {
    Entry {
        action,
        until: None,
        created: UNIX_EPOCH + Duration::from_millis(1_767_225_600_000),
        author: None,
        reason: None,
        label: None,
    }
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn one_of_each() -> Document {
    let policy = || "plan".to_owned();
    let ann = fingerprint("ann");
    let entries = vec![
        Entry {
            until: Some(at(1_767_225_601_500)),
            author: Some("ann".to_owned()),
            reason: Some("ticket 4711, \"really\"".to_owned()),
            label: Some("customer 17".to_owned()),
            ..entry(Action::Override {
                policy: policy(),
                caller: ann,
                quota: quota(5),
            })
        },
        Entry {
            until: Some(at(1_767_229_200_000)),
            ..entry(Action::Ban {
                policy: policy(),
                caller: ann,
            })
        },
        entry(Action::Mode {
            policy: policy(),
            mode: Mode::Shadow,
        }),
        entry(Action::ListIp {
            list: List::Allow,
            range: "192.0.2.0/24".to_owned(),
        }),
        entry(Action::ListKey {
            list: List::Deny,
            key: ann,
        }),
    ];
    document(42, entries)
}

fn document(version: u64, entries: Vec<Entry>) -> Document {
    Document {
        version,
        changed_ms: 1_767_225_600_000,
        lineages: Lineages::read(&[MARK.to_owned()]).expect("a lineage"),
        entries,
    }
}

fn text(document: &Document) -> String {
    String::from_utf8(document.text().expect("a small document")).expect("JSON")
}

/// What is in Redis must be readable by the next version of this crate: this text is never changed
/// without a higher format.
#[test]
fn the_text_of_format_1_stays() {
    let text = text(&one_of_each());
    let (start, entries) = text.split_at(r#"{"format":1,"version":42,"write":""#.len());
    assert_eq!(start, r#"{"format":1,"version":42,"write":""#);
    assert_eq!(
        &entries[16..],
        concat!(
            r#"","changed_ms":1767225600000,"lineages":["0123456789abcdef"],"entries":["#,
            r#"{"kind":"override","policy":"plan","key":"w2numTtQHsvhgOhwcNYq4Q","#,
            r#""quota":"5 per second","until_ms":1767225601500,"created_ms":1767225600000,"#,
            r#""author":"ann","reason":"ticket 4711, \"really\"","label":"customer 17"},"#,
            r#"{"kind":"ban","policy":"plan","key":"w2numTtQHsvhgOhwcNYq4Q","#,
            r#""until_ms":1767229200000,"created_ms":1767225600000},"#,
            r#"{"kind":"mode","policy":"plan","mode":"shadow","created_ms":1767225600000},"#,
            r#"{"kind":"allow","ip":"192.0.2.0/24","created_ms":1767225600000},"#,
            r#"{"kind":"deny","key":"w2numTtQHsvhgOhwcNYq4Q","created_ms":1767225600000}]}"#,
        )
    );
    assert_eq!(Document::parse(text.as_bytes()), Ok(one_of_each()));
}

#[test]
fn a_head_tells_every_write_from_every_other() {
    let document = document(u64::MAX, Vec::new());
    let (one, other) = (text(&document), text(&document));
    assert_ne!(head(one.as_bytes()), head(other.as_bytes()));
    assert_eq!(head(one.as_bytes()).len(), HEAD_BYTES);
    assert_eq!(head_version(head(one.as_bytes())), Ok(u64::MAX));
}

#[test]
fn what_is_no_document_of_this_format_is_named() {
    let with = |entries: &str| {
        format!(
            r#"{{"format":1,"version":1,"write":"{MARK}","changed_ms":1,"lineages":["{MARK}"],"entries":[{entries}]}}"#
        )
    };
    let no_start = r#"it is no control document: it does not start with {"format":1,"version":"#;
    let ban =
        r#"{"kind":"ban","policy":"a","key":"AAAAAAAAAAAAAAAAAAAAAA","until_ms":9,"created_ms":1}"#;
    for (text, expected) in [
        ("garbage".to_owned(), no_start),
        ("{}".to_owned(), no_start),
        ("\u{feff}{\"format\":1,".to_owned(), no_start),
        (r#"{ "format": 1, "version": 1 }"#.to_owned(), no_start),
        (
            r#"{"format":1,"version":0,"write":"0123456789abcdef","entries":[]}"#.to_owned(),
            no_start,
        ),
        (
            r#"{"format":1,"version":-1,"write":"0123456789abcdef""#.to_owned(),
            no_start,
        ),
        (
            r#"{"format":1,"version":1,"write":"short","entries":[]}"#.to_owned(),
            no_start,
        ),
        (
            r#"{"format":99999999999999999999,"version":1"#.to_owned(),
            no_start,
        ),
        (
            r#"{"format":2,"anything":true}"#.to_owned(),
            "it has format 2, and this version reads format 1; update this process",
        ),
        (with(ban) + " ", ""),
        (with(ban) + "x", "trailing characters"),
        (
            with(ban).replace(r#""created_ms":1"#, r#""created_ms":1,"limit":3"#),
            "unknown field `limit`",
        ),
        (with(ban).replace("ban", "bann"), "unknown variant `bann`"),
        (
            with(&format!("{ban},{ban}")),
            "entry 2: it repeats an earlier one",
        ),
        (
            with(ban).replace(r#""until_ms":9,"#, ""),
            "entry 1: a ban without an end",
        ),
        (
            with(ban).replace("AAAA\"", "A\""),
            "is no fingerprint of a key",
        ),
        (
            with(ban).replace("\"a\"", "\"\u{e4}\""),
            "is no name of a policy",
        ),
        (
            with(ban).replace("\"a\"", "\"a\",\"quota\":\"1 per second\""),
            "an entry with the fields of another kind",
        ),
        (
            with(r#"{"kind":"allow","created_ms":1}"#),
            "a list has either keys or addresses",
        ),
        (
            with(r#"{"kind":"allow","ip":"10.0.0.1/8","created_ms":1}"#),
            "has bits set",
        ),
        (
            with(r#"{"kind":"allow","ip":"0.0.0.0/0","created_ms":1}"#),
            "entry 1: ",
        ),
        (
            with(ban).replace(":9,", ":18446744073709551615,"),
            "is no time",
        ),
        (
            with(ban).replace(":1}", r#":1,"author":"a\nb"}"#),
            "has control characters",
        ),
        (
            with(ban).replace(r#"["0123456789abcdef"]"#, "[]"),
            "it has 0 lineages; a document has 1 to 8",
        ),
        (
            with(ban).replace(r#"["0123456789abcdef"]"#, r#"["+123456789abcdef"]"#),
            "is no lineage of 16 hexadecimal digits",
        ),
        (with(&"[".repeat(100_000)), "it is no control document"),
    ] {
        let shown = text.get(..200).unwrap_or(&text);
        match Document::parse(text.as_bytes()) {
            Ok(_) => assert_eq!(expected, "", "{shown}"),
            Err(why) => {
                let why = why.to_string();
                assert!(
                    !expected.is_empty() && why.contains(expected),
                    "{shown}: {why}"
                );
            }
        }
    }
}

#[test]
fn a_document_is_bounded() {
    let entries = |count: usize, label: Option<String>| {
        let entry = |number: usize| Entry {
            label: label.clone(),
            ..entry(Action::Mode {
                policy: number.to_string(),
                mode: Mode::Off,
            })
        };
        document(1, (0..count).map(entry).collect())
    };
    let full = entries(MAX_ENTRIES, None);
    let text = full.text().expect("it fits");
    assert!(text.len() < MAX_BYTES);
    assert_eq!(Document::parse(&text), Ok(full));

    let more = entries(MAX_ENTRIES + 1, None);
    let count = more.entries.len();
    assert_eq!(more.text(), Err(Unreadable::TooManyEntries { count }));
    let of_others = String::from_utf8(text).expect("JSON");
    let of_others = of_others.replace(
        "]}",
        r#",{"kind":"mode","policy":"a","mode":"off","created_ms":1}]}"#,
    );
    assert_eq!(
        Document::parse(of_others.as_bytes()),
        Err(Unreadable::TooManyEntries { count })
    );

    let wide = entries(MAX_ENTRIES, Some("x".repeat(100)));
    assert_eq!(wide.text(), Err(Unreadable::TooLarge));
    let mut large = head(&entries(1, None).text().expect("small")).to_vec();
    large.resize(MAX_BYTES + 1, b' ');
    assert_eq!(Document::parse(&large), Err(Unreadable::TooLarge));
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let policy = "[a-z]{1,3}";
    let key = prop::array::uniform4(any::<u8>());
    let caller = key.prop_map(|key| crate::Fingerprint::from(&crate::Key::from(&key[..])));
    let list = prop_oneof![Just(List::Allow), Just(List::Deny)];
    let mode = prop_oneof![Just(Mode::Enforce), Just(Mode::Shadow), Just(Mode::Off)];
    let ip =
        (any::<[u8; 4]>(), any::<bool>()).prop_map(|([a, b, c, d], is_range)| match is_range {
            true => format!("{a}.{b}.{c}.0/24"),
            false => format!("{a}.{b}.{c}.{d}/32"),
        });
    let action = prop_oneof![
        (policy, caller.clone(), 1_u64..1_000).prop_map(|(policy, caller, limit)| {
            Action::Override {
                policy,
                caller,
                quota: quota(limit),
            }
        }),
        (policy, caller.clone()).prop_map(|(policy, caller)| Action::Ban { policy, caller }),
        (policy, mode).prop_map(|(policy, mode)| Action::Mode { policy, mode }),
        (list.clone(), ip).prop_map(|(list, range)| Action::ListIp { list, range }),
        (list, caller).prop_map(|(list, key)| Action::ListKey { list, key }),
    ];
    let ms = 1_u64..4_000_000_000_000;
    let any_text = prop::option::of("\\PC{0,40}");
    let texts = (any_text.clone(), any_text.clone(), any_text);
    (action, ms.clone(), prop::option::of(ms), texts).prop_map(
        |(action, created, until, (author, reason, label))| {
            let is_ban = matches!(action, Action::Ban { .. });
            Entry {
                action,
                until: until.or(is_ban.then_some(created)).map(at),
                created: at(created),
                author,
                reason,
                label,
            }
        },
    )
}

/// Entries of different subjects, as a document has them.
fn any_entries(most: usize) -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec(any_entry(), 0..most).prop_map(|mut entries| {
        let mut subjects = std::collections::HashSet::new();
        entries.retain(|entry| subjects.insert(entry.action.subject()));
        entries
    })
}

proptest! {
    #[test]
    fn every_document_is_read_as_it_was_written(
        version in 1_u64..,
        entries in any_entries(20),
    ) {
        let document = document(version, entries);
        let text = document.text().expect("a small document");
        prop_assert_eq!(head_version(head(&text)), Ok(version));
        prop_assert_eq!(Document::parse(&text), Ok(document));
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        entries in any_entries(4),
        cut: prop::sample::Index,
        byte: u8,
    ) {
        let _ = Document::parse(&bytes);
        let _ = head_version(&bytes);
        let document = document(7, entries);
        let mut text = document.text().expect("a small document");
        let place = cut.index(text.len());
        let _ = Document::parse(&text[..place]);
        text[place] = byte;
        let _ = Document::parse(&text);
    }
}
