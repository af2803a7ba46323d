//! A control document on top of a file.

use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::control::Mode;

use super::{ask_plainly, limits_of, policy, replace};

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
