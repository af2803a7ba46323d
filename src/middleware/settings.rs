//! The settings of a built layer.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response, StatusCode};

use super::{
    denied::Denied,
    erased::Erased,
    grpc::GrpcDenials,
    headers::{Fields, HeaderFormat},
    rules::{RequestReaders, Rule},
};
use crate::{
    Decision, RequestHead,
    engine::Engine,
    fingerprint::Secret,
    key::{HeadReader, KeyError},
    policy_name::Name,
    telemetry,
    util::interned::Interned,
};

pub(super) type OnDenied = dyn Fn(Denied<'_>) -> Response<Bytes> + Send + Sync;
pub(super) type HeadersWhen = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// The settings of a built layer.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(super) engine: Engine,
    /// Those of the engine's policies, in their order.
    pub(super) readers: Box<[RequestReaders]>,
    /// Which requests are limited at all.
    pub(super) when: Option<HeadReader<bool>>,
    pub(super) partition_secret: Secret,
    /// Whether a policy settles what its requests hold.
    pub(super) settles: bool,
    /// Whether a request is charged once, by one policy, and does not wait.
    pub(super) is_plain: bool,
    pub(super) response: ResponseSettings,
    /// Those of requests whose version of the control document sets no mode: see
    /// [`fields_under`](Self::fields_under).
    pub(super) fields: Interned<Fields>,
    /// How long a request may wait to be admitted.
    pub(super) wait: Option<Duration>,
    /// Whether a configuration error of enforced policies was logged, and one of shadow policies.
    pub(super) logged: Arc<[OnceLock<()>; 2]>,
    pub(super) name_offender: Option<HeadReader<Option<String>>>,
}

impl Settings {
    /// Returns the policies with what they read.
    pub(super) fn rules(&self) -> impl Iterator<Item = Rule<'_>> + Clone {
        let rules = self.engine.policies.iter().zip(&self.readers);
        rules.map(|(policy, readers)| Rule { policy, readers })
    }

    /// Whether the policies limit this request.
    pub(super) fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.when.as_ref().is_none_or(|when| (when.0)(head))
    }

    /// Puts the decision into the extensions of a request, if the layer does. Returns the
    /// extensions for its response.
    pub(super) fn share(&self, decision: &Decision, request: &mut Extensions) -> Extensions {
        let mut extensions = Extensions::new();
        if self.response.decision_in_extensions {
            let decision = decision.within(request.get());
            request.insert(decision.clone());
            extensions.insert(decision);
        }
        extensions
    }

    /// Counts and logs a shadow policy that applies to a request and could not be checked: it has no
    /// key, or its quota holds permits. The request continues.
    pub(super) fn record_unchecked(&self, policy: &Name, error: Option<&KeyError>) {
        let recorder = &self.engine.recorder;
        let advice = error.and_then(KeyError::advice);
        match error.filter(|_| advice.is_none()) {
            Some(missing) => {
                recorder.shadow_key_missing(policy);
                telemetry::shadow_key_missing(&policy.text, missing);
                self.log_key_error(missing);
            }
            None => recorder.shadow_unknown(policy),
        }
        let [_, logged] = &*self.logged;
        if let Some(advice) = advice.filter(|_| logged.set(()).is_ok()) {
            telemetry::shadow_misconfigured(advice);
        }
    }

    /// Logs once that the application is misconfigured.
    pub(super) fn log_key_error(&self, error: &KeyError) {
        if let Some(name) = error.extension() {
            telemetry::extension_missing(name);
        }
        let [logged, _] = &*self.logged;
        if let Some(advice) = error.advice().filter(|_| logged.set(()).is_ok()) {
            telemetry::misconfigured(advice);
        }
    }
}

/// How requests are answered.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseSettings {
    pub(super) format: HeaderFormat,
    pub(super) headers_when: Option<Erased<HeadersWhen>>,
    pub(super) decision_in_extensions: bool,
    pub(super) shadow_with_headers: bool,
    pub(super) retry_after_jitter: Duration,
    pub(super) grpc_denials: GrpcDenials,
    pub(super) on_denied: Option<Erased<OnDenied>>,
}
