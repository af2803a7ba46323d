//! Denies a request: the denial is recorded in the layer's lists, and answered.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use smallvec::SmallVec;

use super::{denied::Denial, key::known_method, respond::respond, settings::Settings};
use crate::{
    Decision, Fingerprint, Key, RequestHead, Source,
    offenders::{DeniedCaller, Known, RecentDenial},
    policy_name::Name,
};

impl Settings {
    /// Denies a request: records the denial, and makes the response. `key_of`: returns the key that
    /// a policy would have charged.
    pub(super) fn deny<'a>(
        &self,
        denial: Denial<'_>,
        key_of: &dyn Fn(&Name) -> Option<Cow<'a, Key>>,
        head: &RequestHead<'_>,
    ) -> Response<Bytes> {
        let offenders = &self.engine.recorder.offenders;
        let callers = denial.policies();
        let callers = callers.map(|name| offenders.caller(name, false, key_of(name)));
        let callers: SmallVec<[DeniedCaller<'_>; 2]> = callers.collect();
        // A store in memory decides by the clock of the lists.
        let in_memory = denial.decision.filter(|decision| {
            decision.source() == Source::Store && self.engine.store.memory().is_some()
        });
        let decided_at_us = in_memory.map(Decision::decided_at_us);
        let details = || RecentDenial {
            retry_after: denial.retry_after(),
            method: known_method(head),
            #[cfg(feature = "axum")]
            route: {
                let route = head.extensions().get::<axum::extract::MatchedPath>();
                route.map(|route| route.as_str().to_owned())
            },
            ..RecentDenial::new(denial.reason)
        };
        let identify = |caller: &DeniedCaller<'_>, key: &Key| self.identify(caller, key, head);
        offenders.record(denial.reason, decided_at_us, &callers, details, identify);
        respond(denial, &self.response, &self.fields, head)
    }

    fn identify(&self, caller: &DeniedCaller<'_>, key: &Key, head: &RequestHead<'_>) -> Known {
        let policy = self.engine.policy(&caller.policy.text);
        let stored = policy.and_then(|policy| {
            let demand = Cow::Borrowed(&policy.demand);
            let charge = policy.charge(Cow::Borrowed(key), demand);
            Fingerprint::in_storage_key(&self.engine.store.storage_key(&charge)?)
        });
        // The request is of one of the callers who share these.
        let is_shared = [Key::everyone(), Key::missing()].contains(key);
        let name = self.name_offender.as_ref().filter(|_| !is_shared);
        Known::new(caller, key, stored, name.and_then(|name| (name.0)(head)))
    }
}
