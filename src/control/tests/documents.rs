//! The text of a document.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use proptest::prelude::*;

use super::{fingerprint, quota};
use crate::{
    List,
    control::{
        Action, Entry, Mode,
        document::{Document, HEAD_BYTES, MAX_BYTES, MAX_ENTRIES, head},
        entry::{Last, Subject},
    },
};

const MARK: &str = "0123456789abcdef";
const NOW_MS: u64 = 1_767_225_600_000;

fn entry(action: Action) -> Entry {
    Entry {
        action,
        until: None,
        created: at(NOW_MS),
        author: None,
        reason: None,
        label: None,
    }
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn document(version: u64, entries: Vec<Entry>) -> Document {
    let changes = entries.into_iter();
    let changes = changes.map(|entry| (entry.action.subject(), Last::Made(entry)));
    let changes = changes.collect();
    Document { version, changes }
}

fn text(document: &Document) -> String {
    String::from_utf8(document.text().expect("a small document")).expect("JSON")
}

/// What is in Redis must be readable by the next version of this crate: this text is never changed
/// without a higher format.
#[test]
fn the_text_of_format_1_stays() {
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
            created: at(NOW_MS + 1),
            ..entry(Action::Ban {
                policy: policy(),
                caller: ann,
            })
        },
        Entry {
            created: at(NOW_MS + 2),
            ..entry(Action::Mode {
                policy: policy(),
                mode: Mode::Shadow,
            })
        },
        Entry {
            created: at(NOW_MS + 3),
            ..entry(Action::ListIp {
                list: List::Allow,
                range: "192.0.2.0/24".to_owned(),
            })
        },
        Entry {
            created: at(NOW_MS + 4),
            ..entry(Action::ListKey {
                list: List::Deny,
                policy: policy(),
                caller: ann,
            })
        },
    ];
    let mut document = document(NOW_MS + 9, entries);
    let removed = [
        Subject::Override("gone".to_owned(), ann),
        Subject::Ban("gone".to_owned(), ann),
        Subject::Mode("gone".to_owned()),
        Subject::Ip("192.0.2.7/32".to_owned()),
        Subject::Key("gone".to_owned(), fingerprint("bob")),
    ];
    for (ms, subject) in (NOW_MS + 5..).zip(removed) {
        document.changes.insert(subject, Last::Removed { ms });
    }
    let text = text(&document);
    let start = r#"{"format":1,"version":1767225600009,"write":""#;
    let changes = text.strip_prefix(start).expect("its start");
    assert_eq!(
        &changes[16..],
        concat!(
            r#"","changes":["#,
            r#"{"kind":"override","policy":"plan","key":"w2numTtQHsvhgOhwcNYq4Q","#,
            r#""changed_ms":1767225600000,"quota":"5 per second","until_ms":1767225601500,"#,
            r#""author":"ann","reason":"ticket 4711, \"really\"","label":"customer 17"},"#,
            r#"{"kind":"ban","policy":"plan","key":"w2numTtQHsvhgOhwcNYq4Q","#,
            r#""changed_ms":1767225600001,"until_ms":1767229200000},"#,
            r#"{"kind":"mode","policy":"plan","changed_ms":1767225600002,"mode":"shadow"},"#,
            r#"{"kind":"allow","ip":"192.0.2.0/24","changed_ms":1767225600003},"#,
            r#"{"kind":"deny","policy":"plan","key":"w2numTtQHsvhgOhwcNYq4Q","#,
            r#""changed_ms":1767225600004},"#,
            r#"{"kind":"override","policy":"gone","key":"w2numTtQHsvhgOhwcNYq4Q","#,
            r#""changed_ms":1767225600005,"removed":true},"#,
            r#"{"kind":"ban","policy":"gone","key":"w2numTtQHsvhgOhwcNYq4Q","#,
            r#""changed_ms":1767225600006,"removed":true},"#,
            r#"{"kind":"mode","policy":"gone","changed_ms":1767225600007,"removed":true},"#,
            r#"{"kind":"listed","ip":"192.0.2.7/32","changed_ms":1767225600008,"removed":true},"#,
            r#"{"kind":"listed","policy":"gone","key":"BOB","changed_ms":1767225600009,"removed":true}]}"#,
        )
        .replace("BOB", &fingerprint("bob").to_string())
    );
    assert_eq!(Document::parse(text.as_bytes()), Ok(document));
}

#[test]
fn a_head_tells_every_write_from_every_other() {
    // The longest number: that of the year 2255.
    let document = document((1 << 53) / 1_000, Vec::new());
    let [one, other] = [text(&document), text(&document)];
    let start = |text: &str| text.as_bytes()[..HEAD_BYTES - 16].to_vec();
    assert_ne!(start(&one), start(&other));
    assert_eq!(
        head(one.as_bytes()),
        &one.as_bytes()[..one.len().min(HEAD_BYTES)]
    );
}

#[test]
fn what_is_no_document_of_this_format_is_named() {
    let with = |changes: &str| {
        format!(r#"{{"format":1,"version":1,"write":"{MARK}","changes":[{changes}]}}"#)
    };
    let ban =
        r#"{"kind":"ban","policy":"a","key":"AAAAAAAAAAAAAAAAAAAAAA","until_ms":9,"changed_ms":1}"#;
    let removed = r#"{"kind":"mode","policy":"a","changed_ms":1,"removed":true}"#;
    let no_start = r#"it is no control document: it does not start with {"format":1,"version":1,"#;
    let other_kind = "change 1: a change with the fields of another kind";
    let banned = |from: &str, to: &str| with(ban).replace(from, to);
    let unlisted = |from: &str, to: &str| with(&removed.replace(from, to));
    let listed = |rest: &str| with(&format!(r#"{{"kind":"allow",{rest}}}"#));
    for (text, expected) in [
        (
            "garbage".to_owned(),
            "it is no control document: expected value",
        ),
        ("{}".to_owned(), "missing field `format`"),
        ("\u{feff}{\"format\":1,".to_owned(), "expected value"),
        (banned(":1,", ": 1,"), no_start),
        (banned(MARK, "short"), no_start),
        (banned(MARK, "\u{e4}\u{e4}\u{e4}"), no_start),
        (
            format!(r#"{{"version":1,"format":1,"write":"{MARK}","changes":[]}}"#),
            no_start,
        ),
        (
            with("").replace("version\":1", "version\":-1"),
            "invalid value",
        ),
        (
            r#"{"format":99999999999999999999,"version":1}"#.to_owned(),
            "it is no control document",
        ),
        (
            r#"{"format":2,"anything":true}"#.to_owned(),
            "it has format 2, and this version reads format 1; update this process",
        ),
        (with(ban) + " ", ""),
        (with(removed), ""),
        (with(ban) + "x", "trailing characters"),
        (
            banned(r#""changed_ms":1"#, r#""changed_ms":1,"limit":3"#),
            "unknown field `limit`",
        ),
        (banned("ban", "bann"), "unknown variant `bann`"),
        (
            with(&format!("{ban},{ban}")),
            "change 2: it repeats an earlier one",
        ),
        (
            banned(r#""changed_ms":1"#, r#""changed_ms":2"#),
            "change 1: it is later than the document",
        ),
        (
            banned(r#""until_ms":9,"#, ""),
            "change 1: a ban without an end",
        ),
        (banned("AAAA\"", "A\""), "is no fingerprint of a key"),
        (banned("\"a\"", "\"\u{e4}\""), "policy name"),
        (
            banned("\"a\"", "\"a\",\"quota\":\"1 per second\""),
            other_kind,
        ),
        (unlisted("true", "false"), other_kind),
        (unlisted("}", r#","mode":"off"}"#), other_kind),
        (unlisted("}", r#","until_ms":9}"#), other_kind),
        (unlisted("}", r#","author":"ann"}"#), other_kind),
        (
            with(&removed.replace("mode", "listed").replace("policy", "key")),
            "is no fingerprint",
        ),
        (
            with(r#"{"kind":"listed","ip":"192.0.2.1/32","changed_ms":1}"#),
            other_kind,
        ),
        (
            listed(r#""ip":"192.0.2.1/32","changed_ms":1,"removed":true"#),
            other_kind,
        ),
        (listed(r#""changed_ms":1"#), other_kind),
        (
            listed(r#""key":"AAAAAAAAAAAAAAAAAAAAAA","changed_ms":1"#),
            other_kind,
        ),
        (
            listed(r#""ip":"10.0.0.1/8","changed_ms":1"#),
            "has bits set",
        ),
        (listed(r#""ip":"0.0.0.0/0","changed_ms":1"#), "change 1: "),
        (banned(":9,", ":18446744073709551615,"), "is no time"),
        (
            banned(":1}", r#":1,"author":"a\nb"}"#),
            "has control characters",
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
        document(NOW_MS, (0..count).map(entry).collect())
    };
    let full = entries(MAX_ENTRIES, None);
    let text = full.text().expect("it fits");
    assert!(text.len() < MAX_BYTES);
    assert_eq!(Document::parse(&text), Ok(full));

    let more = entries(MAX_ENTRIES + 1, None);
    let count = more.changes.len();
    let too_many = format!("it has {count} entries; the most are 10000");
    assert_eq!(more.text(), Err(too_many.clone()));
    let of_others = String::from_utf8(text).expect("JSON");
    let of_others = of_others.replace(
        "]}",
        r#",{"kind":"mode","policy":"a","changed_ms":1,"mode":"off"}]}"#,
    );
    assert_eq!(Document::parse(of_others.as_bytes()), Err(too_many.clone()));

    let wide = entries(MAX_ENTRIES, Some("x".repeat(100)));
    assert_eq!(
        wide.text(),
        Err("it is larger than 1048576 bytes".to_owned())
    );
    let mut large = head(&entries(1, None).text().expect("small")).to_vec();
    large.resize(MAX_BYTES + 1, b' ');
    assert_eq!(
        Document::parse(&large),
        Err("it is larger than 1048576 bytes".to_owned())
    );
}

/// As many as have room for themselves.
#[test]
fn ended_entries_give_way_by_their_bytes() {
    let entry = |number: u64, until: Option<SystemTime>| Entry {
        label: Some("\"".repeat(256)),
        created: at(NOW_MS + number),
        until,
        ..entry(Action::Mode {
            policy: number.to_string(),
            mode: Mode::Off,
        })
    };
    let live = (0..1_000).map(|number| entry(number, None));
    let ended = (1_000..3_000).map(|number| entry(number, Some(at(NOW_MS + 4_000))));
    let mut document = document(NOW_MS + 4_000, live.chain(ended).collect());
    assert_eq!(
        document.text(),
        Err("it is larger than 1048576 bytes".to_owned())
    );
    let now = at(NOW_MS + 5_000);
    document.tidy(now);
    assert_eq!(document.live(now).count(), 1_000);
    let text = document.text().expect("it fits");
    assert!(
        (MAX_BYTES - 1_000..=MAX_BYTES).contains(&text.len()),
        "{}",
        text.len()
    );
    let kept = document.entries().map(|entry| entry.created);
    let oldest = kept.filter(|created| *created >= at(NOW_MS + 1_000)).min();
    let expected = NOW_MS + 3_000 - (document.changes.len() as u64 - 1_000);
    assert_eq!(oldest, Some(at(expected)), "the latest ones");
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let policy = "[ab]";
    let key = prop::array::uniform1(0..2_u8);
    let caller = key.prop_map(|key| crate::Fingerprint::from(&crate::Key::from(&key[..])));
    let list = prop_oneof![Just(List::Allow), Just(List::Deny)];
    let mode = prop_oneof![Just(Mode::Enforce), Just(Mode::Shadow), Just(Mode::Off)];
    let ip =
        (prop::array::uniform4(0..2_u8), any::<bool>()).prop_map(|([a, b, c, d], is_range)| {
            match is_range {
                true => format!("{a}.{b}.{c}.0/24"),
                false => format!("{a}.{b}.{c}.{d}/32"),
            }
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
        (list, policy, caller).prop_map(|(list, policy, caller)| Action::ListKey {
            list,
            policy,
            caller,
        }),
    ];
    let ms = prop_oneof![1_u64..4, 1_u64..4_000_000_000_000];
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

/// Documents with the changes of few subjects, at few times.
fn any_document(most: usize) -> impl Strategy<Value = Document> {
    let change = prop_oneof![
        3 => any_entry().prop_map(|entry| (entry.action.subject(), Last::Made(entry))),
        1 => (any_entry(), 1..4_u64)
            .prop_map(|(entry, ms)| (entry.action.subject(), Last::Removed { ms })),
    ];
    let changes = prop::collection::vec(change, 0..most);
    (1_u64..1_000, changes).prop_map(|(more, changes)| {
        let changes: HashMap<_, _> = changes.into_iter().collect();
        let last = changes.values().map(Last::ms).max();
        let version = last.unwrap_or(0) + more;
        Document { version, changes }
    })
}

proptest! {
    #[test]
    fn every_document_is_read_as_it_was_written(document in any_document(20)) {
        let text = document.text().expect("a small document");
        prop_assert_eq!(Document::parse(&text), Ok(document));
    }

    /// The order of merges and their number do not matter.
    #[test]
    fn documents_are_merged_in_any_order(
        a in any_document(9),
        b in any_document(9),
        c in any_document(9),
    ) {
        let merged = a.merge(&b);
        prop_assert_eq!(&merged, &b.merge(&a));
        prop_assert_eq!(merged.merge(&c), a.merge(&b.merge(&c)));
        prop_assert_eq!(&merged.merge(&b), &merged);
        prop_assert_eq!(a.merge(&a), a);
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        document in any_document(4),
        cut: prop::sample::Index,
        byte: u8,
    ) {
        let _ = Document::parse(&bytes);
        let mut text = document.text().expect("a small document");
        let place = cut.index(text.len());
        let _ = Document::parse(&text[..place]);
        text[place] = byte;
        let _ = Document::parse(&text);
    }
}
