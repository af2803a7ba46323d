//! What a process does with what it finds in the store.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{FIRST, HOUR, Layer, Shelf, callers, made, modes, policies, text};
use crate::{ManualClock, StoreError, control::Mode, error::StoreErrorKind};

#[tokio::test]
async fn a_look_reads_the_text_only_if_its_head_is_new() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    control.refresh().await.expect("nothing is stored");
    assert_eq!(shelf.reads(), (1, 0));
    shelf.put(modes(&["a"]));
    control.refresh().await.expect("it is read");
    assert_eq!(
        (shelf.reads(), &*policies(&control).join(" ")),
        ((1, 1), "a")
    );
    control.refresh().await.expect("nothing is new");
    assert_eq!(shelf.reads(), (1, 0));
    shelf.put(modes(&["a", "b"]));
    control.refresh().await.expect("it is read");
    assert_eq!(policies(&control), ["a", "b"]);
    // A text that is not a document is read once, too.
    let mut cut = modes(&["c"]);
    cut.pop();
    shelf.reads();
    for stored in [cut, b"garbage".to_vec()] {
        shelf.put(stored);
        for expected in [(1, 1), (1, 0)] {
            control.refresh().await.expect_err("it is no document");
            assert_eq!(shelf.reads(), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_changes_nothing_and_is_not_overwritten() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    shelf.put(modes(&["a"]));
    control.refresh().await.expect("it is read");
    let too_large = [modes(&["b"]), vec![b' '; 1 << 20]].concat();
    let newer = String::from_utf8(modes(&["b"]))
        .unwrap()
        .replace(r#""format":1"#, r#""format":2"#);
    let century = 100 * 365 * 24 * 3_600_000;
    for (stored, expected) in [
        (b"garbage".to_vec(), "it is no control document"),
        (
            newer.into_bytes(),
            "it has format 2, and this version reads format 1",
        ),
        (too_large, "it is larger than 1048576 bytes"),
        (text(u64::MAX, ""), "a century after now"),
        (text(FIRST + century + 1, ""), "a century after now"),
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
            (1, vec!["a".to_owned()])
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
    // What is deleted because it cannot be read takes nothing along.
    shelf.put("");
    made(control.set_mode("c", Mode::Off)).await;
    assert_eq!(
        (control.status().problem, policies(&control)),
        (None, vec!["a".to_owned(), "c".to_owned()])
    );
}

/// The latest version that is read: it was written by hand, or the clock of the server was wrong.
#[tokio::test]
async fn a_document_of_a_far_version_can_be_changed() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let far = FIRST + 100 * 365 * 24 * 3_600_000;
    shelf.put(text(
        far,
        &format!(r#"{{"kind":"mode","policy":"a","changed_ms":{far},"mode":"off"}}"#),
    ));
    let (one, other) = (shelf.held(&clock), shelf.held(&clock));
    other.refresh().await.expect("it is read");
    clock.advance(Duration::from_millis(2));
    made(one.set_mode("a", Mode::Shadow)).await;
    made(one.clear_mode("a")).await;
    other.refresh().await.expect("it is read");
    for control in [&one, &other] {
        let status = control.status();
        assert_eq!((status.entries, status.version), (0, far + 2));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_what_is_known() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    assert_eq!(control.status().age, None);
    made(control.ban("plan", "ann", HOUR)).await;
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    shelf.fail(Some(StoreError::new(StoreErrorKind::Unavailable)));
    sleep(Duration::from_secs(20)).await;
    let error = control.refresh().await.expect_err("an outage");
    assert_eq!(
        error.to_string(),
        "the control document cannot be read: the store cannot be reached"
    );
    assert!(!error.may_have_happened() && error.store_error().is_some());
    let status = control.status();
    assert_eq!(
        (status.version, status.entries, status.age),
        (FIRST, 1, Some(Duration::from_secs(20)))
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
    assert!(callers(&control, "plan").is_empty());
    assert_eq!(control.entries(), []);

    shelf.fail(None);
    control.refresh().await.expect("it is back");
    assert_eq!(control.status().problem, None);
}
