//! Changes that meet those of others, or whose answers are lost.

use std::sync::Arc;

use super::{FIRST, HOUR, Shelf, made, modes, policies};
use crate::{
    ManualClock, StoreError,
    control::{ControlError, Mode},
    error::StoreErrorKind,
    util::lock::lock,
};

#[tokio::test(start_paused = true)]
async fn a_change_is_made_on_top_of_those_that_others_made_meanwhile() {
    let clock = Arc::new(ManualClock::new());
    let shelf = Shelf::default();
    let control = shelf.held(&clock);
    lock(&shelf.0).rivals = vec![modes(&["a", "b"]), modes(&["a"])];
    made(control.set_mode("c", Mode::Off)).await;
    assert_eq!(
        (policies(&control).join(" "), control.status().version),
        ("a b c".to_owned(), FIRST)
    );

    // More than its attempts: its looks meet some, too.
    lock(&shelf.0).rivals = (0..80).map(|_| modes(&["a"])).collect();
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

#[tokio::test]
async fn what_was_not_stored_after_a_loss_is_an_error() {
    let shelf = Shelf::default();
    let control = shelf.held(&Arc::new(ManualClock::new()));
    made(control.ban("plan", "ann", HOUR)).await;
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
