//! Denies a request: the denial is recorded in the layer's lists, and answered.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;

use super::{denied::Denial, key::known_method, respond::respond, settings::Settings};
use crate::{
    Decision, Fingerprint, Key, PolicyDecision, RequestHead,
    offenders::{Identity, NewDenial, Route},
    policy_name::Name,
};

impl Settings {
    /// Denies a request: records the denial, and makes the response. `key_of`: returns the key that
    /// a policy would have charged.
    ///
    /// `inline(never)`: five places deny, and each would have a copy.
    #[inline(never)]
    pub(super) fn deny<'a>(
        &self,
        denial: Denial<'_>,
        key_of: &dyn Fn(&Name) -> Option<&'a Key>,
        head: &RequestHead<'_>,
    ) -> Response<Bytes> {
        if !self.is_remembered(denial) {
            self.record(denial, key_of, head);
        }
        respond(denial, &self.response, &self.fields, head)
    }

    /// Counts a denial, if the thread remembers that it repeats the last one: most denials of a flood.
    #[inline]
    fn is_remembered(&self, denial: Denial<'_>) -> bool {
        denial.decision.is_some_and(|decision| {
            let (callers, decided_us) = (decision.denied_callers(), decision.decided_at_us());
            self.offenders
                .count_remembered(callers, denial.reason, decided_us)
        })
    }

    /// Counts a denial like the last one, or records another.
    #[inline(never)]
    fn record<'a>(
        &self,
        denial: Denial<'_>,
        key_of: &dyn Fn(&Name) -> Option<&'a Key>,
        head: &RequestHead<'_>,
    ) {
        let is_repeated = denial.decision.is_some_and(|decision| {
            let (callers, decided_us) = (decision.denied_callers(), decision.decided_at_us());
            let denied = decision.denied_by().map(PolicyDecision::interned_name);
            let denied = denied.map(|policy| (policy, key_of(policy)));
            self.offenders
                .count_again(callers, denial.reason, decided_us, denied)
        });
        if is_repeated {
            return;
        }
        let callers = denial.policy_names().filter_map(|policy| {
            let name = &self.engine.policy(policy)?.name;
            Some(self.offenders.caller(name.clone(), key_of(name)))
        });
        let denial = NewDenial {
            reason: denial.reason,
            decided_at_us: denial.decision.map_or(0, Decision::decided_at_us),
            retry_after: denial.retry_after(),
            method: known_method(head),
            route: route(head),
            callers: callers.collect(),
        };
        self.offenders.record(denial, |caller, key| {
            self.identify(&caller.policy.text, key, head)
        });
    }

    #[cold]
    fn identify(&self, policy: &str, key: &Key, head: &RequestHead<'_>) -> Identity {
        let stored = self.engine.policy(policy).and_then(|policy| {
            let demand = Cow::Borrowed(&policy.demand);
            let charge = policy.charge(Cow::Borrowed(key), demand);
            Fingerprint::in_storage_key(&self.engine.store.storage_key(&charge)?)
        });
        // The request is of one of the callers who share these.
        let is_shared = [Key::everyone(), Key::missing()].contains(key);
        let name = self.name_offender.as_ref().filter(|_| !is_shared);
        let name = name.and_then(|name| (name.0)(head));
        let identity = |fingerprint| Identity::new(fingerprint, name);
        match stored {
            Some(fingerprint) => identity(fingerprint),
            #[cfg(feature = "admin")]
            None => identity(Fingerprint::from(key)).with_key(key),
            #[cfg(not(feature = "admin"))]
            None => identity(Fingerprint::from(key)),
        }
    }
}

#[cfg(feature = "axum")]
fn route(head: &RequestHead<'_>) -> Option<Route> {
    head.extensions().get().cloned()
}

#[cfg(not(feature = "axum"))]
fn route(_: &RequestHead<'_>) -> Option<Route> {
    None
}
