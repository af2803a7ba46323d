//! What follows a document: layers, and the task that ends entries.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{HOUR, Layer, Shelf, callers, fingerprint, made, mode, quota};
use crate::{
    Clock, ManualClock,
    control::{Control, Mode},
};

#[tokio::test(start_paused = true)]
async fn entries_end_by_themselves_and_leave_the_text_a_day_later() {
    let clock = Arc::new(ManualClock::new());
    let control = Control::in_memory_with(Arc::clone(&clock) as Arc<dyn Clock>);
    let ann = fingerprint("ann");
    let found = || callers(&control, "plan").remove(&ann);
    made(
        control
            .override_quota("plan", "ann", quota(5))
            .until(2 * HOUR),
    )
    .await;
    made(control.ban("plan", "ann", HOUR)).await;
    assert!(matches!(found(), Some((Some(_), Some(_)))));
    // The task of the control sees it, and no request.
    clock.advance(HOUR);
    sleep(Duration::from_millis(1_300)).await;
    assert_eq!(found(), Some((Some(quota(5)), None)));
    clock.advance(HOUR);
    sleep(Duration::from_millis(1_300)).await;
    assert_eq!((found(), control.entries()), (None, Vec::new()));
    made(control.set_mode("plan", Mode::Off)).await;
    assert_eq!(control.0.document().changes.len(), 3);
    // The ban ended an hour before the quota.
    clock.advance(23 * HOUR);
    made(control.clear_mode("plan")).await;
    assert_eq!(control.0.document().changes.len(), 2);
}

#[tokio::test]
async fn an_entry_is_back_when_the_clock_was_ahead() {
    let clock = Arc::new(ManualClock::new());
    let began = clock.now_us();
    let control = Shelf::default().held(&clock);
    let layer = Arc::new(Layer::default());
    control.held().subscribe(&layer);
    made(control.ban("plan", "ann", HOUR)).await;
    let is_banned = || !callers(&control, "plan").is_empty();
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

#[tokio::test]
async fn each_version_is_checked_against_a_layer_while_it_lives() {
    let clock = Arc::new(ManualClock::new());
    let control = Shelf::default().held(&clock);
    made(control.set_mode("a", Mode::Off)).await;
    let layer = Arc::new(Layer {
        policies: vec!["a"],
        conflict: Some("policy \"a\" cannot be off"),
        ..Layer::default()
    });
    control.held().subscribe(&layer);
    assert_eq!((layer.times(), mode(&control, "a")), (1, Some(Mode::Off)));
    assert_eq!(
        control.status().problem.as_deref(),
        Some("policy \"a\" cannot be off")
    );
    made(control.set_mode("b", Mode::Shadow)).await;
    assert_eq!(
        (layer.times(), mode(&control, "b")),
        (2, Some(Mode::Shadow))
    );
    assert_eq!(control.status().unknown_policies, ["b"]);

    let gone = Arc::downgrade(&layer);
    drop(layer);
    assert!(gone.upgrade().is_none());
    made(control.set_mode("c", Mode::Off)).await;
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
            let change = control.set_mode(policy, Mode::Off).until(HOUR);
            made(change).await;
            clock.advance(HOUR);
            sleep(Duration::from_millis(1_300)).await;
            assert_eq!(mode(&control, policy), None);
        });
    }
}
