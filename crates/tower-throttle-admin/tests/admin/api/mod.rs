//! The API: JSON below `/api/v1/`.

mod audit;
mod changes;
mod look_ups;
mod page;
mod reads;
mod samples;

use tower_throttle::control::Control;
use tower_throttle_admin::Admin;

use crate::support::prelude::*;
use crate::{
    operator::Operator,
    support::web::{get, standing_store},
};

/// A policy of two requests an hour for each key.
fn plan() -> Policy {
    Policy::new("plan", FixedWindow::per_hour(2)).key(key::header("x-api-key"))
}

/// A layer that follows a document, and its operator.
fn page<const N: usize>(policies: [Policy; N]) -> (RateLimitLayer, Control, Operator) {
    let (store, _) = standing_store();
    let control = store.control();
    let builder = RateLimitLayer::builder().store(store);
    let policies = policies.into_iter();
    let builder = policies.fold(builder, |builder, policy| builder.policy(policy));
    let layer = builder.control(control.clone()).build().expect("a layer");
    let ann = Operator::new(Admin::new(&layer).control(&control));
    (layer, control, ann)
}

/// Returns the status of a request with this key.
fn status(layer: &RateLimitLayer, key: &str) -> u16 {
    ask(layer, get([("x-api-key", key)])).status.as_u16()
}

fn ask_times(layer: &RateLimitLayer, key: &str, times: usize) {
    for _ in 0..times {
        status(layer, key);
    }
}

/// For tests that read the log of their thread.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}
