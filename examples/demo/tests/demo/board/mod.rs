//! The Grafana board and the alert rules of `docs/grafana`, compared with what the demo exports,
//! and run by Prometheus.

mod export;
mod files;
mod names;
mod prometheus;
mod running;

pub(crate) use self::export::ROUTES;
