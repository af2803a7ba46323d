//! Changes, one after the other: what they write, and what cannot be written.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use super::{FIRST, HOUR, Shelf, callers, fingerprint, made, mode, modes, quota, start};
use crate::{
    Key, List, ManualClock,
    control::{Action, Mode},
    overrides::LoadedLists,
};

#[tokio::test]
async fn every_kind_of_change_is_made_and_taken_back() {
    let clock = Arc::new(ManualClock::new());
    let control = Shelf::default().held(&clock);
    let (ann, bob) = (fingerprint("ann"), fingerprint("bob"));

    let change = control
        .override_quota("plan", "ann", quota(5))
        .until(2 * HOUR);
    let change = change.author("eve").because("ticket").label("customer 17");
    made(change).await;
    made(control.ban("plan", "bob", HOUR)).await;
    made(control.set_mode("burst", Mode::Shadow)).await;
    made(control.allow_ip("192.0.2.1")).await;
    made(control.deny_key("plan", bob)).await;
    assert_eq!(control.status().version, FIRST + 4);

    let entries = control.entries();
    assert_eq!(entries[0].until, Some(start() + 2 * HOUR));
    assert_eq!(entries[0].created, start());
    let texts = [&entries[0].author, &entries[0].reason, &entries[0].label];
    assert_eq!(
        texts.map(|text| text.as_deref()),
        [Some("eve"), Some("ticket"), Some("customer 17")]
    );
    assert_eq!(
        entries[3].action,
        Action::ListIp {
            list: List::Allow,
            range: "192.0.2.1/32".to_owned(),
        }
    );

    let until_ms = (start() + HOUR).duration_since(UNIX_EPOCH);
    let until_ms = u64::try_from(until_ms.unwrap().as_millis()).ok();
    let expected = [(ann, (Some(quota(5)), None)), (bob, (None, until_ms))];
    assert_eq!(callers(&control, "plan"), expected.into());
    assert_eq!(mode(&control, "burst"), Some(Mode::Shadow));
    let overrides = control.held().overrides();
    let lists = LoadedLists::new(None, Some(&overrides)).expect("entries");
    assert_eq!(
        lists.find_address(&crate::key::peer(), "192.0.2.1".parse().unwrap()),
        Some(List::Allow)
    );
    let list_of = |policy| lists.find_key(policy, &Key::from("bob"), |_| bob);
    assert_eq!(["plan", "burst"].map(list_of), [Some(List::Deny), None]);

    assert!(made(control.clear_override("plan", "ann")).await);
    assert!(!made(control.clear_override("plan", "ann")).await);
    assert!(made(control.unban("plan", bob)).await);
    assert!(made(control.clear_mode("burst")).await);
    assert!(made(control.unlist_ip("192.0.2.1/32")).await);
    assert!(made(control.unlist_key("plan", "bob")).await);
    assert_eq!(
        (control.entries(), control.status().version),
        (Vec::new(), FIRST + 9)
    );
    assert!(callers(&control, "plan").is_empty());
    assert!(!made(control.remove_all()).await);
}

#[tokio::test]
async fn what_cannot_be_written_is_an_error_and_writes_nothing() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    let errors = [
        control.set_mode("", Mode::Off).await,
        control.ban("plan", "ann", Duration::ZERO).await,
        control.ban("plan", "ann", start() - HOUR).await,
        control.set_mode("plan", Mode::Off).until(start()).await,
        control
            .set_mode("plan", Mode::Off)
            .because("x".repeat(257))
            .await,
        control.set_mode("plan", Mode::Off).author("a\u{7}").await,
        control.deny_ip("0.0.0.0/0").await,
        control.deny_ip("10.0.0.1/8").await,
        control.allow_key("plan", Key::everyone()).await,
    ];
    let errors = errors.map(|error| error.expect_err("an error").to_string());
    for (error, expected) in errors.iter().zip([
        "policy name",
        "the end has passed already",
        "the end has passed already",
        "the end has passed already",
        "a text of 257 bytes; the longest has 256",
        "control characters",
        "every address",
        "bits set",
        "all callers",
    ]) {
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(shelf.text(), b"");
}

#[tokio::test]
async fn a_full_document_takes_no_more_until_something_is_removed() {
    let names: Vec<_> = (0..10_000).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    shelf.put(modes(&names));
    let control = shelf.held(&clock);
    let full = control
        .set_mode("one-more", Mode::Off)
        .await
        .expect_err("it is full");
    assert_eq!(
        full.to_string(),
        "the control document cannot take this change: it has 10001 entries; the most are 10000; remove entries"
    );
    assert!(!full.may_have_happened());
    assert!(made(control.clear_mode("0")).await);
    control
        .set_mode("one-more", Mode::Off)
        .await
        .expect("there is room");
}

#[tokio::test]
async fn a_ban_whose_end_no_clock_can_express_can_be_read_again() {
    let control = Shelf::default().held(&Arc::new(ManualClock::new()));
    made(control.ban("plan", "ann", Duration::MAX)).await;
    assert_eq!(control.status().problem, None);
    let entries = control.entries();
    assert!(entries[0].until > Some(start() + 365 * 24 * HOUR));
    let next = control.deny_key("plan", "bob").await;
    next.expect("the next one, too");
    assert_eq!(control.entries().len(), 2);
}
