//! What is logged: each content and each reason once.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{Layer, Shelf, modes};
use crate::{
    ManualClock, StoreError,
    error::StoreErrorKind,
    util::{lock::lock, log::Log},
};

#[tokio::test(start_paused = true)]
async fn each_content_and_each_reason_is_logged_once() {
    let log = Log::start();
    let shelf = Shelf::default();
    let control = shelf.held(&Arc::new(ManualClock::new()));
    let layer = Arc::new(Layer {
        policies: vec!["a"],
        ..Layer::default()
    });
    control.held().subscribe(&layer);
    // Each is looked at three times.
    let look = async || {
        for _ in 0..3 {
            // The log says what is wrong.
            let _ = control.refresh().await;
        }
        let target = "tower_throttle::control: ";
        let line = |line: String| line.trim_start().replacen(target, "", 1);
        log.take().into_iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(look().await, [""; 0]);
    shelf.put(modes(3, &["a"]));
    assert_eq!(
        look().await,
        ["INFO control document applied version=3 entries=1"]
    );
    shelf.put(modes(4, &["a", "b"]));
    assert_eq!(
        look().await,
        [
            "INFO control document applied version=4 entries=2",
            "INFO control document names policies that this process does not have version=4 policies=[\"b\"]",
        ]
    );
    shelf.put("garbage");
    assert_eq!(
        look().await,
        [
            "WARN control document not applied (it is no control document: it does not start with {\"format\":1,\"version\":); keeping version 4"
        ]
    );
    shelf.put("");
    assert_eq!(
        look().await,
        [
            "WARN control document is gone from the store; keeping version 4, and storing it again",
            "INFO control document applied version=5 entries=2",
            "WARN control document had lost changes of version 4; stored again as version 5 entries=2",
            "INFO control document names policies that this process does not have version=5 policies=[\"b\"]",
        ]
    );
    // Reading is allowed, and writing is not.
    let refuse = || {
        let error = StoreError::new(StoreErrorKind::Refused);
        lock(&shelf.0).lost_answers = vec![(error, false)];
    };
    refuse();
    shelf.put("");
    assert_eq!(
        look().await,
        [
            "WARN control document is gone from the store; keeping version 5, and storing it again",
            "WARN control document cannot be stored again (the store refused the check); keeping version 5",
        ]
    );
    refuse();
    shelf.put(modes(2, &["a"]));
    assert_eq!(
        look().await,
        [
            "WARN control document lacks changes of version 5, which cannot be stored again (the store refused the check); version 2 applies",
            "INFO control document applied version=2 entries=1",
        ]
    );

    // A right that is missing does not come by itself. An outage may be short.
    shelf.fail(Some(StoreError::new(StoreErrorKind::Refused)));
    assert_eq!(
        look().await,
        [
            "WARN control document cannot be read (the store refused the check); keeping version 2 kind=\"refused\""
        ]
    );
    shelf.fail(None);
    assert_eq!(
        look().await,
        ["INFO control document can be read again version=2"]
    );
    shelf.fail(Some(StoreError::new(StoreErrorKind::Timeout)));
    sleep(Duration::from_secs(9)).await;
    assert_eq!(look().await, [""; 0]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        look().await,
        [
            "WARN control document cannot be read (the store did not answer before the deadline); keeping version 2 kind=\"timeout\""
        ]
    );
    shelf.fail(None);
    look().await;

    let choosy = Arc::new(Layer {
        cannot_take: Some("policy \"a\" cannot be off"),
        ..Layer::default()
    });
    control.held().subscribe(&choosy);
    control.held().subscribe(&choosy);
    assert_eq!(
        look().await,
        [
            "WARN part of the control document not applied (policy \"a\" cannot be off); the rest applies version=2"
        ]
    );
}
