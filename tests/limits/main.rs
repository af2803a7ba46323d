//! What is admitted, in memory and elsewhere: the model, waiting, the fallback, simulations.

mod architecture;
#[cfg(feature = "testing")]
mod concurrent_calls;
#[cfg(feature = "testing")]
mod conformance;
#[cfg(feature = "testing")]
mod dispatch;
mod docs_consistency;
mod fallback;
mod figures;
mod holds;
mod lists;
mod logins;
mod memory;
mod migration;
mod model;
mod overrides;
mod patience;
mod pauses;
mod penalties;
mod pictures;
mod quota_text;
#[cfg(feature = "testing")]
mod scaling;
mod shadow;
#[cfg(feature = "testing")]
mod simulated;
#[cfg(feature = "testing")]
mod store_metrics;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
