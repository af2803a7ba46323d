//! The settings of a built layer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::{
    denied::Denied,
    erased::Erased,
    grpc::GrpcDenials,
    headers::{Fields, HeaderFormat},
    plan::Plan,
};
use crate::{
    charge::Charge,
    key::{KeyError, Reason},
    store::handle::StoreHandle,
    telemetry,
    util::interned::Interned,
};

pub(super) type HeadersWhen = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;
pub(super) type OnDenied = dyn Fn(Denied<'_>) -> Response<Bytes> + Send + Sync;

/// The settings of a built layer.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) store: StoreHandle,
    pub(super) plan: Plan,
    pub(super) response: ResponseConfig,
    pub(super) fields: Interned<Fields>,
    /// How long a request may wait to be admitted.
    pub(super) wait: Option<Duration>,
    /// How many requests of this process may wait for one bucket.
    pub(super) max_waiting: usize,
    pub(super) logged: Arc<Logged>,
}

impl Config {
    /// Whether a request may have to wait for more than the store's answer, or what it
    /// takes must be refunded.
    #[inline]
    pub(super) fn may_wait(&self, charges: &[Charge<'_>]) -> bool {
        let is_held = |charge: &Charge<'_>| {
            charge.demand.quota.is_concurrency() || charge.demand.quota.paces()
        };
        self.wait.is_some() || charges.iter().any(is_held)
    }

    /// Logs once that the application is misconfigured.
    #[cold]
    pub(super) fn log_key_error(&self, error: &KeyError) {
        let is_first = |flag: &AtomicBool| {
            !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed)
        };
        match error.reason() {
            Reason::Missing(missing) => {
                if let Some(name) = missing.extension() {
                    if is_first(&self.logged.extension) {
                        telemetry::extension_missing(name);
                    }
                }
            }
            Reason::Misconfigured(advice) => {
                if is_first(&self.logged.misconfigured) {
                    telemetry::misconfigured(advice);
                }
            }
        }
    }
}

/// How requests are answered.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseConfig {
    pub(super) format: HeaderFormat,
    pub(super) headers_when: Option<Erased<HeadersWhen>>,
    pub(super) decision_in_extensions: bool,
    pub(super) retry_after_jitter: Duration,
    pub(super) grpc_denials: GrpcDenials,
    pub(super) on_denied: Option<Erased<OnDenied>>,
}

/// The configuration errors that were logged.
#[derive(Debug, Default)]
pub(super) struct Logged {
    pub(super) misconfigured: AtomicBool,
    pub(super) extension: AtomicBool,
}
