//! The limits of the routes, in code or from a file.

use std::{error::Error, sync::Arc, time::Duration};

use axum::Router;
use tower_throttle::{
    Buckets, Outcome, RateLimitLayer, RequestHead, Settle, control::Control, key::KeyError,
    metrics::to_prometheus, store::Store,
};
use tower_throttle_admin::{Access, Admin};
use tower_throttle_config::{self as config, Config, Readers};

use crate::in_code;

const ROUTES: [&str; 12] = [
    "token-bucket",
    "fixed-window",
    "stacked",
    "weighted",
    "leaky-bucket",
    "paced",
    "sliding-window",
    "sliding-log",
    "concurrency",
    "login",
    "tokens",
    "penalty",
];

/// How often the file is read.
const INTERVAL: Duration = Duration::from_secs(2);

/// The layers of the routes.
#[derive(Clone)]
pub(crate) struct Limits {
    layers: Arc<in_code::Layers>,
    pub(crate) store_name: &'static str,
    file: Option<config::Limits>,
    /// What an operator changes. `None` with a file, whose store has it.
    control: Option<Control>,
}

impl Limits {
    pub(crate) fn in_code(
        store: &Arc<dyn Store>,
        control: Control,
        store_name: &'static str,
    ) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            layers: Arc::new(in_code::layers(store, &control)?),
            store_name,
            file: None,
            control: Some(control),
        })
    }

    /// Reads the file, and goes on to follow its changes.
    pub(crate) fn from_file(path: &str) -> Result<Self, Box<dyn Error>> {
        let readers = Readers::new()
            .cost("query", in_code::cost)
            .settle("at the end", |_: &Outcome<'_>| Settle::AtEnd);
        let limits = Config::from_path(path)?.readers(readers).build()?;
        limits.watch(INTERVAL)?;
        let layer = |&route| Ok((route, limits.layer(route)?));
        let layers: Result<_, config::UnknownName> = ROUTES.iter().map(layer).collect();
        Ok(Self {
            layers: Arc::new(layers?),
            store_name: "the store of the file",
            control: None,
            file: Some(limits),
        })
    }

    /// Ends the store of the file, if there is one.
    pub(crate) async fn shutdown(&self) {
        if let Some(file) = &self.file {
            file.shutdown().await;
        }
    }

    pub(crate) fn layer(&self, route: &str) -> Result<RateLimitLayer, Box<dyn Error>> {
        let layer = self.layers.get(route).cloned();
        layer.ok_or_else(|| format!("the route {route} has no limit").into())
    }

    /// Returns the admin page, for browsers and programs on this machine.
    pub(crate) fn admin(&self) -> Result<Router, Box<dyn Error>> {
        let mut layers = self.layers.values();
        let admin = match &self.file {
            Some(file) => Admin::new(file),
            None => {
                let first = layers.next().ok_or("there are no limits")?;
                layers.fold(Admin::new(first), |admin, layer| admin.target(layer))
            }
        };
        let admin = match &self.control {
            Some(control) => admin.control(control),
            None => admin,
        };
        let admin = admin
            .access(Access::loopback_with_changes())
            .allow_changes();
        Ok(admin.into_router())
    }

    /// Returns the buckets of a request's caller, on all routes.
    pub(crate) fn buckets(&self, head: &RequestHead<'_>) -> Result<Vec<Buckets>, KeyError> {
        self.layers
            .values()
            .map(|layer| layer.buckets(head))
            .collect()
    }

    /// Returns the numbers of all layers as one text for Prometheus.
    pub(crate) fn to_prometheus(&self) -> String {
        match &self.file {
            Some(file) => file.to_prometheus(),
            None => {
                let snapshots: Vec<_> = self.layers.values().map(RateLimitLayer::metrics).collect();
                to_prometheus(&snapshots)
            }
        }
    }
}
