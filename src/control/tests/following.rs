//! How a process follows a document, and changes it.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use tokio::time::sleep;

use super::{Layer, Shelf, fingerprint, modes, quota, start};
use crate::{
    Clock, Key, List, ManualClock, Quota, StoreError,
    control::{Action, Control, ControlError, Mode, document::Document},
    error::StoreErrorKind,
    overlay::Override,
    util::lock::lock,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// The quota of a caller, and the end of its ban.
fn gets(given: &Override) -> (Option<Quota>, Option<u64>) {
    (
        given.quota.as_ref().map(|quota| **quota),
        given.banned_until_ms,
    )
}

fn policies(control: &Control) -> Vec<String> {
    let entries = control.entries().into_iter();
    let policies = entries.filter_map(|entry| entry.action.policy().map(str::to_owned));
    policies.collect()
}

#[tokio::test]
async fn every_kind_of_change_is_made_and_taken_back() {
    let clock = Arc::new(ManualClock::new());
    let control = Shelf::default().held(&clock);
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    let (ann, bob) = (fingerprint("ann"), fingerprint("bob"));

    let change = control
        .override_quota("plan", "ann", quota(5))
        .until(2 * HOUR);
    let change = change.author("eve").because("ticket").label("customer 17");
    change.await.expect("it is made");
    control.ban("plan", "bob", HOUR).await.expect("it is made");
    control
        .set_mode("burst", Mode::Shadow)
        .await
        .expect("it is made");
    control.allow_ip("192.0.2.1").await.expect("it is made");
    control.deny_key(bob).await.expect("it is made");
    assert_eq!(control.status().version, 5);

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

    let overlay = layer.last();
    let callers = overlay.callers("plan").expect("two callers");
    assert_eq!(gets(&callers[&ann]), (Some(quota(5)), None));
    let until_ms = u64::try_from(
        (start() + HOUR)
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis(),
    );
    assert_eq!(gets(&callers[&bob]), (None, until_ms.ok()));
    assert_eq!(overlay.mode("burst"), Some(Mode::Shadow));
    assert_eq!(overlay.mode("plan"), None);
    let lists = overlay.lists_beside(None).expect("lists");
    let lists = lists.by_hand.expect("those of the document");
    assert_eq!(
        lists.addresses.find_address("192.0.2.1".parse().unwrap()),
        Some(List::Allow)
    );
    assert_eq!(lists.keys[&bob], List::Deny);

    assert!(
        control
            .clear_override("plan", "ann")
            .await
            .expect("it is made")
    );
    assert!(
        !control
            .clear_override("plan", "ann")
            .await
            .expect("nothing to do")
    );
    assert!(control.unban("plan", bob).await.expect("it is made"));
    assert!(control.clear_mode("burst").await.expect("it is made"));
    assert!(control.unlist_ip("192.0.2.1/32").await.expect("it is made"));
    assert!(control.unlist_key("bob").await.expect("it is made"));
    assert_eq!(
        (control.entries(), control.status().version),
        (Vec::new(), 10)
    );
    assert!(layer.last().callers("plan").is_none());
    assert!(!control.remove_all().await.expect("nothing to do"));
}

#[tokio::test]
async fn a_later_entry_replaces_one_about_the_same() {
    let clock = Arc::new(ManualClock::new());
    let control = Shelf::default().held(&clock);
    control
        .override_quota("plan", "ann", quota(5))
        .await
        .expect("it is made");
    control
        .override_quota("plan", "ann", quota(6))
        .await
        .expect("it is made");
    control.deny_ip("10.0.0.0/8").await.expect("it is made");
    control.allow_ip("10.0.0.0/8").await.expect("it is made");
    let actions: Vec<_> = control
        .entries()
        .into_iter()
        .map(|entry| entry.action)
        .collect();
    assert_eq!(
        actions,
        [
            Action::Override {
                policy: "plan".to_owned(),
                caller: fingerprint("ann"),
                quota: quota(6),
            },
            Action::ListIp {
                list: List::Allow,
                range: "10.0.0.0/8".to_owned(),
            },
        ]
    );
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
        control.allow_key(Key::everyone()).await,
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
    shelf.put(modes(1, &names));
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
    assert!(control.clear_mode("0").await.expect("it is made"));
    control
        .set_mode("one-more", Mode::Off)
        .await
        .expect("there is room");
}

#[tokio::test]
async fn a_look_reads_the_text_only_if_its_head_is_new() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    control.refresh().await.expect("nothing is stored");
    assert_eq!(shelf.reads(), (1, 0));
    shelf.put(modes(1, &["a"]));
    control.refresh().await.expect("it is read");
    assert_eq!(
        (shelf.reads(), policies(&control)),
        ((1, 1), vec!["a".to_owned()])
    );
    control.refresh().await.expect("nothing is new");
    assert_eq!(shelf.reads(), (1, 0));
    shelf.put(modes(2, &["b"]));
    control.refresh().await.expect("it is read");
    assert_eq!(policies(&control), ["b"]);
    // What is no document is read once, too, and not at all if its head says so.
    let mut cut = modes(3, &["c"]);
    cut.pop();
    shelf.put(cut);
    shelf.reads();
    for expected in [(1, 1), (1, 0)] {
        control.refresh().await.expect_err("it is cut off");
        assert_eq!(shelf.reads(), expected);
    }
    shelf.put("garbage");
    control.refresh().await.expect_err("it is no document");
    assert_eq!(shelf.reads(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_changes_nothing_and_is_not_overwritten() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    shelf.put(modes(3, &["a"]));
    control.refresh().await.expect("it is read");
    let too_large = [modes(9, &["b"]), vec![b' '; 1 << 20]].concat();
    let newer = String::from_utf8(modes(9, &["b"]))
        .unwrap()
        .replace(r#""format":1"#, r#""format":2"#);
    for (stored, expected) in [
        (b"garbage".to_vec(), "it is no control document"),
        (
            newer.into_bytes(),
            "it has format 2, and this version reads format 1",
        ),
        (too_large, "it is larger than 1048576 bytes"),
    ] {
        shelf.put(stored.clone());
        let error = control
            .refresh()
            .await
            .expect_err("it cannot be read")
            .to_string();
        assert!(error.contains(expected), "{error}");
        let status = control.status();
        assert_eq!(
            (status.version, policies(&control)),
            (3, vec!["a".to_owned()])
        );
        let problem = status.problem.expect("a problem");
        assert!(problem.contains(expected), "{problem}");
        assert_eq!(status.age, Some(Duration::ZERO));

        let error = control
            .set_mode("c", Mode::Off)
            .await
            .expect_err("it cannot be read");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(shelf.text(), stored);
    }
    assert_eq!(layer.times(), 2);
    shelf.put(modes(10, &["c"]));
    control.refresh().await.expect("it is read");
    assert_eq!(
        (control.status().problem, policies(&control)),
        (None, vec!["c".to_owned()])
    );
}

#[tokio::test]
async fn a_lost_document_is_kept_and_the_next_change_stores_it_again() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    shelf.put(modes(3, &["a"]));
    control.refresh().await.expect("it is read");
    shelf.put("");
    control.refresh().await.expect_err("it is gone");
    assert_eq!(
        (policies(&control), control.status().version),
        (vec!["a".to_owned()], 3)
    );
    control.set_mode("b", Mode::Off).await.expect("it is made");
    assert_eq!(
        (policies(&control), control.status().version),
        (vec!["a".into(), "b".into()], 4)
    );
    assert_eq!(control.status().problem, None);

    assert!(!control.restore().await.expect("it is there"));
    shelf.put("");
    assert!(control.restore().await.expect("it is stored"));
    let stored = Document::parse(&shelf.text()).expect("a document");
    assert_eq!((stored.version, stored.entries.len()), (5, 2));
    // One that was emptied by intent is empty.
    assert!(control.remove_all().await.expect("it is made"));
    control.refresh().await.expect("nothing is new");
    assert_eq!((policies(&control).len(), control.status().version), (0, 6));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_made_on_top_of_those_that_others_made_meanwhile() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    lock(&shelf.0).rivals = vec![modes(2, &["a", "b"]), modes(1, &["a"])];
    control.set_mode("c", Mode::Off).await.expect("it is made");
    assert_eq!(
        (policies(&control).join(" "), control.status().version),
        ("a b c".to_owned(), 3)
    );

    lock(&shelf.0).rivals = (0..64).map(|_| modes(9, &["a"])).collect();
    let error = control
        .set_mode("d", Mode::Off)
        .await
        .expect_err("others are faster");
    assert!(!error.may_have_happened(), "{error}");
    assert!(
        error.to_string().contains("others changed it each time"),
        "{error}"
    );
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_looked_up() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    let lose = |kind, is_made| {
        lock(&shelf.0).lost_answers = vec![(StoreError::new(kind), is_made)];
    };
    lose(StoreErrorKind::Timeout, true);
    control.set_mode("a", Mode::Off).await.expect("it was made");
    assert_eq!(policies(&control), ["a"]);

    lose(StoreErrorKind::Timeout, false);
    let error = control.set_mode("b", Mode::Off).await.expect_err("unknown");
    assert!(
        error.may_have_happened() && error.store_error().is_some(),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("may have been changed"),
        "{error}"
    );

    lose(StoreErrorKind::Refused, false);
    let error: ControlError = control
        .set_mode("b", Mode::Off)
        .await
        .expect_err("it was refused");
    assert!(!error.may_have_happened(), "{error:?}");
    assert!(error.to_string().contains("was not changed"), "{error}");
    assert_eq!(policies(&control), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_what_is_known() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    assert_eq!(control.status().age, None);
    control.ban("plan", "ann", HOUR).await.expect("it is made");
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    shelf.fail(Some(StoreError::new(StoreErrorKind::Unavailable)));
    sleep(Duration::from_secs(20)).await;
    control.refresh().await.expect_err("an outage");
    let status = control.status();
    assert_eq!(
        (status.version, status.entries, status.age),
        (1, 1, Some(Duration::from_secs(20)))
    );
    assert_eq!(
        status.problem.as_deref(),
        Some("the store cannot be reached")
    );
    control.unban("plan", "ann").await.expect_err("an outage");
    assert_eq!(layer.times(), 1);

    // A ban ends in an outage, too.
    clock.advance(HOUR);
    control.refresh().await.expect_err("an outage");
    assert!(layer.last().callers("plan").is_none());
    assert_eq!(control.entries(), []);

    shelf.fail(None);
    control.refresh().await.expect("it is back");
    assert_eq!(control.status().problem, None);
}

#[tokio::test(start_paused = true)]
async fn entries_end_by_themselves_and_leave_the_text_with_the_next_change() {
    let clock = Arc::new(ManualClock::new());
    let control = Control::in_memory_with(Arc::clone(&clock) as Arc<dyn Clock>);
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    let ann = fingerprint("ann");
    let found = || {
        let overlay = layer.last();
        overlay
            .callers("plan")
            .and_then(|callers| callers.get(&ann).map(gets))
    };
    control
        .override_quota("plan", "ann", quota(5))
        .until(2 * HOUR)
        .await
        .expect("it is made");
    control.ban("plan", "ann", HOUR).await.expect("it is made");
    assert!(matches!(found(), Some((Some(_), Some(_)))));
    // The task of the control sees it, and no request.
    clock.advance(HOUR);
    sleep(Duration::from_millis(1_300)).await;
    assert_eq!(found(), Some((Some(quota(5)), None)));
    clock.advance(HOUR);
    sleep(Duration::from_millis(1_300)).await;
    assert_eq!((found(), control.entries()), (None, Vec::new()));
    assert_eq!(control.0.document().entries.len(), 2);
    control
        .set_mode("plan", Mode::Off)
        .await
        .expect("it is made");
    assert_eq!(control.0.document().entries.len(), 1);
}

#[tokio::test]
async fn a_layer_is_told_what_applies_and_each_change_while_it_lives() {
    let clock = Arc::new(ManualClock::new());
    let control = Shelf::default().held(&clock);
    control.set_mode("a", Mode::Off).await.expect("it is made");
    let layer = Arc::new(Layer {
        policies: vec!["a"],
        cannot_take: Some("policy \"a\" cannot be off"),
        ..Layer::default()
    });
    control.held().subscribe(&layer);
    assert_eq!(
        (layer.times(), layer.last().mode("a")),
        (1, Some(Mode::Off))
    );
    assert_eq!(
        control.status().problem.as_deref(),
        Some("policy \"a\" cannot be off")
    );
    control
        .set_mode("b", Mode::Shadow)
        .await
        .expect("it is made");
    assert_eq!(
        (layer.times(), layer.last().mode("b")),
        (2, Some(Mode::Shadow))
    );
    assert_eq!(control.status().unknown_policies, ["b"]);

    let gone = Arc::downgrade(&layer);
    drop(layer);
    assert!(gone.upgrade().is_none());
    control.set_mode("c", Mode::Off).await.expect("it is made");
}

/// A clone keeps it; the last one ends its task.
#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_clone() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let control = Control::in_memory();
    let clone = control.clone();
    sleep(Duration::from_secs(3)).await;
    assert!(tasks() > 0);
    drop(control);
    sleep(Duration::from_secs(3)).await;
    assert!(tasks() > 0);
    drop(clone);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(tasks(), 0);
}

/// The first runtime has ended, and the entry ends nevertheless.
#[test]
fn another_runtime_goes_on() {
    let clock = Arc::new(ManualClock::new());
    let control = Control::in_memory_with(Arc::clone(&clock) as Arc<dyn Clock>);
    for policy in ["a", "b"] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let layer = Arc::new(Layer::default());
            control.held().subscribe(&layer);
            let change = control.set_mode(policy, Mode::Off).until(HOUR);
            change.await.expect("it is made");
            clock.advance(HOUR);
            sleep(Duration::from_millis(1_300)).await;
            assert_eq!(layer.last().mode(policy), None);
        });
    }
}

#[tokio::test]
async fn a_ban_whose_end_no_clock_can_express_can_be_read_again() {
    let control = Shelf::default().held(&Arc::new(ManualClock::new()));
    control
        .ban("plan", "ann", Duration::MAX)
        .await
        .expect("it is made");
    assert_eq!(control.status().problem, None);
    let entries = control.entries();
    assert!(entries[0].until > Some(start() + 365 * 24 * HOUR));
    control.deny_key("bob").await.expect("the next one, too");
    assert_eq!(control.entries().len(), 2);
}

#[tokio::test]
async fn what_was_not_stored_after_a_loss_is_an_error() {
    let shelf = Shelf::default();
    let control = shelf.held(&Arc::new(ManualClock::new()));
    control.ban("plan", "ann", HOUR).await.expect("it is made");
    shelf.put("");
    let lose_answer = || {
        let error = StoreError::new(StoreErrorKind::Timeout);
        lock(&shelf.0).lost_answers = vec![(error, false)];
    };
    lose_answer();
    control.restore().await.expect_err("nothing is stored");
    lose_answer();
    control
        .unban("plan", "ann")
        .await
        .expect_err("the ban is on");
    lose_answer();
    control.remove_all().await.expect_err("the ban is on");
    assert_eq!(control.entries().len(), 1);
    assert!(control.restore().await.expect("it is stored"));
}

#[tokio::test]
async fn an_entry_is_back_when_the_clock_was_ahead() {
    let clock = Arc::new(ManualClock::new());
    let began = clock.now_us();
    let control = Shelf::default().held(&clock);
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    control.ban("plan", "ann", HOUR).await.expect("it is made");
    let is_banned = || layer.last().callers("plan").is_some();
    assert!(is_banned());

    clock.advance(2 * HOUR);
    control.refresh().await.expect("readable");
    assert!(!is_banned());
    clock.set_us(began);
    control.refresh().await.expect("readable");
    assert!(is_banned());
    let times = layer.times();
    control.refresh().await.expect("readable");
    assert_eq!(layer.times(), times);
}
