//! The settings of a built layer.

#[cfg(feature = "control")]
use std::mem;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Response, StatusCode};

use super::{
    denied::Denied,
    erased::Erased,
    grpc::GrpcDenials,
    headers::{Fields, HeaderFormat},
    plan::{Charges, Plan, Rule, Unchecked},
    readers::NameOffender,
};
use crate::{
    Decision, Lists, MemoryStore,
    charge::Charge,
    holds::{Holds, Terms},
    key::{KeyError, Reason},
    metrics::Recorder,
    offenders::Offenders,
    overrides::SeenOverrides,
    store::handle::StoreHandle,
    telemetry,
    util::interned::Interned,
};

pub(super) type HeadersWhen = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;
pub(super) type OnDenied = dyn Fn(Denied<'_>) -> Response<Bytes> + Send + Sync;

/// The settings of a built layer.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) store: StoreHandle,
    pub(super) plan: Plan,
    pub(super) lists: Option<Lists>,
    pub(super) response: ResponseSettings,
    /// Those of requests whose version of the control document sets no mode: see
    /// [`fields_under`](Self::fields_under).
    pub(super) fields: Interned<Fields>,
    /// How long a request may wait to be admitted.
    pub(super) wait: Option<Duration>,
    /// How many requests of this process may wait for one bucket.
    pub(super) max_waiting: usize,
    pub(super) logged: Arc<Logged>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) offenders: Arc<Offenders>,
    pub(super) name_offender: Option<Erased<NameOffender>>,
}

impl Settings {
    /// Tells the store which policies use it. So a name that has two quotas is logged.
    pub(super) fn shared(self) -> Arc<Self> {
        let settings = Arc::new(self);
        // Tiers have several quotas under one name.
        let rules = settings.plan.rules.iter();
        let constant = rules.filter(|rule| rule.is_constant());
        let policies = constant.map(|rule| &rule.base);
        settings.store.add_policies(&settings, policies);
        settings
    }

    /// Returns the only policy and the store, if the store is in memory and nothing is held.
    #[inline]
    pub(super) fn direct(&self, overrides: &SeenOverrides) -> Option<(&Rule, &MemoryStore)> {
        let plan = &self.plan;
        let is_plain =
            self.wait.is_none() && plan.when.is_none() && plan.partition_secret.is_none();
        match (&*plan.rules, self.store.memory()) {
            ([rule], Some(memory))
                if is_plain
                    && !rule.is_special()
                    && !rule.base.enforcement.may_be_shadow()
                    && overrides.policy(&rule.base.name.text).is_none() =>
            {
                Some((rule, memory))
            }
            _ => None,
        }
    }

    /// Returns how the policies are announced under a version of the control document.
    #[inline]
    pub(super) fn fields_under(&self, overrides: &SeenOverrides) -> Interned<Fields> {
        if !self.plan.has_modes(overrides) {
            return self.fields.clone();
        }
        let fields = self.plan.fields(&self.response, overrides, true);
        Interned::Shared(Arc::new(fields))
    }

    /// Puts the decision into the extensions of a request, if the layer does. Returns the
    /// extensions for its response.
    #[inline]
    pub(super) fn share(&self, decision: &Decision, request: &mut Extensions) -> Extensions {
        let mut extensions = Extensions::new();
        if self.response.decision_in_extensions {
            let mut decision = decision.clone();
            if let Some(outer) = request.get() {
                decision.put_within(outer);
            }
            request.insert(decision.clone());
            extensions.insert(decision);
        }
        extensions
    }

    /// Whether a request may have to wait for more than the store's answer, or what it
    /// takes must be refunded.
    #[inline]
    pub(super) fn may_wait(&self, charges: &[Charge<'_>]) -> bool {
        let is_held = |charge: &Charge<'_>| {
            charge.demand.quota.is_concurrency() || charge.demand.quota.paces()
        };
        self.wait.is_some() || charges.iter().any(is_held)
    }

    /// Returns what a decision holds.
    pub(super) fn holds(
        &self,
        charges: &[Charge<'_>],
        shadows: &[Charge<'_>],
        decision: &Decision,
    ) -> Option<Holds> {
        let terms = |charge: &Charge<'_>| {
            let mut rules = self.plan.rules.iter();
            let rule = rules.find(|rule| rule.base.name == charge.policy);
            let is_penalty = charge.demand.quota.penalty().is_some();
            Terms {
                debt: rule.map_or(0, |rule| rule.base.debt),
                // Its settlements are strikes.
                is_debited: is_penalty && rule.is_some_and(|rule| rule.settle_by.is_some()),
            }
        };
        Holds::new(
            &self.store,
            charges,
            shadows,
            decision,
            terms,
            &self.recorder,
        )
    }

    /// Returns the decision for a caller that operators have banned.
    #[cold]
    pub(super) fn decide_by_bans(&self, charges: &mut Charges<'_>) -> Option<Decision> {
        #[cfg(feature = "control")]
        let bans = charges.rare.as_mut().map(|rare| mem::take(&mut rare.bans));
        #[cfg(feature = "control")]
        if let Some(bans) = bans.filter(|bans| !bans.is_empty()) {
            let mut decision = Decision::by_bans(bans);
            let is_of_ban = |charge: &&Charge<'_>| {
                let mut policies = decision.policies();
                policies.any(|policy| policy.name() == charge.policy())
            };
            let banned: Vec<Charge<'_>> =
                charges.enforced.iter().filter(is_of_ban).cloned().collect();
            if let Some(keys) = self.plan.partition_keys(&banned) {
                decision.give_partitions(&keys);
            }
            return Some(decision);
        }
        let _ = charges;
        None
    }

    /// Counts and logs shadow policies that could not be checked. The request goes on.
    #[cold]
    pub(super) fn record_unchecked(&self, unchecked: &[Unchecked<'_>]) {
        for Unchecked { policy, error } in unchecked {
            match error.as_ref().map(KeyError::reason) {
                Some(Reason::Missing(missing)) => {
                    self.recorder.shadow_key_missing(policy);
                    telemetry::shadow_key_missing(&policy.text, &missing);
                    if let Some(error) = error {
                        self.log_key_error(error);
                    }
                }
                Some(Reason::Misconfigured(advice)) => {
                    self.recorder.shadow_unknown(policy);
                    if !self.logged.shadow.swap(true, Ordering::Relaxed) {
                        telemetry::shadow_misconfigured(advice);
                    }
                }
                None => self.recorder.shadow_unknown(policy),
            }
        }
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
pub(super) struct ResponseSettings {
    pub(super) format: HeaderFormat,
    pub(super) headers_when: Option<Erased<HeadersWhen>>,
    pub(super) decision_in_extensions: bool,
    pub(super) shadow_with_headers: bool,
    pub(super) retry_after_jitter: Duration,
    pub(super) grpc_denials: GrpcDenials,
    pub(super) on_denied: Option<Erased<OnDenied>>,
}

/// The configuration errors that were logged.
#[derive(Debug, Default)]
pub(super) struct Logged {
    pub(super) misconfigured: AtomicBool,
    pub(super) extension: AtomicBool,
    /// A shadow policy is misconfigured.
    pub(super) shadow: AtomicBool,
}
