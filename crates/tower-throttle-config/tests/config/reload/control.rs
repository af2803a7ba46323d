//! A control document on top of a file.

use tokio::time::sleep;
use tower_throttle::control::{Control, Mode};
use tower_throttle_config::{Limits, Readers};

use super::{ask_plainly, limits_of, limits_with, policy, replace};
use crate::support::prelude::*;

#[tokio::test(start_paused = true)]
async fn a_document_applies_to_each_version_of_the_file() {
    let limits = limits_of(&policy("api", "1 per day"));
    let layer = limits.layer("default").expect("a layer");
    let statuses = || [(); 2].map(|()| ask_plainly(&layer).status.as_u16());
    assert_eq!(statuses(), [200, 429]);
    let control = limits.control().expect("in memory");
    control.set_mode("api", Mode::Shadow).await.expect("set");
    assert_eq!(statuses(), [200, 200]);
    assert_eq!(control.status().unknown_policies, [""; 0]);

    replace(&limits, &policy("web", "2 per day"));
    assert_eq!(statuses(), [200, 200]);
    assert_eq!(statuses(), [429, 429]);
    assert_eq!(control.status().unknown_policies, ["api"]);
    replace(&limits, &policy("api", "1 per day"));
    assert_eq!(statuses(), [200, 200]);

    control.clear_mode("api").await.expect("cleared");
    assert_eq!(statuses(), [429, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_outlives_its_limits_follows_the_document() {
    let limits = limits_of(&policy("api", "1 per day"));
    let layer = limits.layer("default").expect("a layer");
    let control = limits.control().expect("in memory");
    drop(limits);
    sleep(Duration::from_secs(10)).await;
    control.set_mode("api", Mode::Off).await.expect("set");
    for _ in 0..3 {
        assert_eq!(ask_plainly(&layer).status, 200);
    }
}

/// Builds a file whose store is one of the application.
fn limits_on(store: impl Store) -> Limits {
    let text = format!("{}[store]\nreader = \"own\"\n", policy("api", "1 per day"));
    limits_with(&text, Readers::new().store("own", store))
}

#[tokio::test(start_paused = true)]
async fn limits_on_a_store_of_the_application_follow_a_document_of_its_own() {
    let own = MemoryStore::new();
    let limits = limits_on(own.clone());
    assert!(limits.control().is_none());
    let control = own.control();
    limits.follow(&control).expect("the names of its store");
    assert!(limits.control().is_some());
    let layer = limits.layer("default").expect("a layer");
    control.set_mode("api", Mode::Off).await.expect("set");
    for _ in 0..2 {
        assert_eq!(ask_plainly(&layer).status, 200);
    }
}

#[cfg(feature = "redis")]
#[tokio::test(start_paused = true)]
async fn a_document_that_names_keys_in_another_way_is_not_followed() {
    use tower_throttle::testing::SimulatedRedis;

    let store = hasty().secret("s").simulated(&SimulatedRedis::new());
    let limits = limits_on(store.expect("a store"));
    let errors = limits
        .follow(&Control::in_memory())
        .expect_err("another secret");
    assert_eq!(errors.problems()[0].code(), "control-secret");
    assert!(limits.control().is_none());
    // Each other version is as right as before.
    let next = policy("api", "2 per day") + "[store]\nreader = \"own\"\n";
    replace(&limits, &next);
}
