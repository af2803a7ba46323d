//! What is logged: each content and each reason once.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{HOUR, Layer, Shelf, modes};
use crate::{
    ManualClock, StoreError,
    error::StoreErrorKind,
    util::{lock::lock, tests::log::Log},
};

#[tokio::test(start_paused = true)]
async fn each_content_and_each_reason_is_logged_once() {
    let log = Log::start();
    let shelf = Shelf::default();
    let clock = Arc::new(ManualClock::new());
    let control = shelf.held(&clock);
    let layer = Arc::new(Layer {
        policies: vec!["a"],
        ..Layer::default()
    });
    control.held().subscribe(&layer);
    // Each is looked at three times, and the log reports what is wrong.
    let logs = async |expected: &[&str]| {
        for _ in 0..3 {
            let _ = control.refresh().await;
        }
        let target = "tower_throttle::control: ";
        let line = |line: String| line.trim_start().replacen(target, "", 1);
        let logged: Vec<_> = log.take().into_iter().map(line).collect();
        assert_eq!(logged, expected);
    };
    logs(&[]).await;
    shelf.put(modes(&["a"]));
    logs(&["INFO control document applied version=1 entries=1"]).await;
    shelf.put(modes(&["a", "b"]));
    logs(&[
        "INFO control document applied version=2 entries=2",
        "INFO control document names policies that this process does not have version=2 policies=[\"b\"]",
    ])
    .await;
    shelf.put("garbage");
    logs(&["WARN control document not applied (it is no control document: expected value at line 1 column 1); keeping version 2"]).await;
    shelf.put("");
    logs(&[
        "INFO control document applied version=1767225600000 entries=2",
        "WARN control document lacked 2 known changes; stored them again as version 1767225600000 lacking=2",
        "INFO control document names policies that this process does not have version=1767225600000 policies=[\"b\"]",
    ])
    .await;
    // Reading is allowed, and writing is not.
    let error = StoreError::new(StoreErrorKind::Refused);
    lock(&shelf.0).lost_answers = vec![(error, false)];
    shelf.put("");
    logs(&["WARN control document lacks 2 known changes, which cannot be stored again (the store refused the check); they apply in this process lacking=2"]).await;
    shelf.put(modes(&["c"]));
    logs(&[
        "INFO control document applied version=1767225600000 entries=3",
        "INFO control document names policies that this process does not have version=1767225600000 policies=[\"b\", \"c\"]",
    ])
    .await;
    // Others have written for a day what this process did not see.
    clock.advance(25 * HOUR);
    shelf.put(modes(&["a"]));
    logs(&[
        "WARN control document was out of reach for a day and lacks 2 known changes; dropping them, as they may have been removed lacking=2",
        "INFO control document applied version=1 entries=1",
    ])
    .await;

    // A missing right does not appear on its own. An outage may be short.
    shelf.fail(Some(StoreError::new(StoreErrorKind::Refused)));
    logs(&["WARN control document cannot be read (the store refused the check); keeping version 1 kind=\"refused\""]).await;
    shelf.fail(None);
    logs(&["INFO control document can be read again version=1"]).await;
    shelf.fail(Some(StoreError::new(StoreErrorKind::Timeout)));
    sleep(Duration::from_secs(9)).await;
    logs(&[]).await;
    sleep(Duration::from_secs(1)).await;
    logs(&["WARN control document cannot be read (the store did not answer before the deadline); keeping version 1 kind=\"timeout\""]).await;
    shelf.fail(None);
    logs(&["INFO control document can be read again version=1"]).await;

    let choosy = Arc::new(Layer {
        conflict: Some("policy \"a\" cannot be off"),
        ..Layer::default()
    });
    control.held().subscribe(&choosy);
    control.held().subscribe(&choosy);
    logs(&["WARN part of the control document not applied (policy \"a\" cannot be off); the rest applies version=1"]).await;
}
