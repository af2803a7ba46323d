//! Writes a decision as header fields.

mod format;
mod ietf;
mod legacy;

use http::{HeaderMap, HeaderName, HeaderValue};

pub use self::format::HeaderFormat;
use crate::{
    Decision, PolicyDecision, Quota, Source,
    policy_name::Name,
    util::interned::{InternTable, Interned},
};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// How decisions are written as header fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    format: HeaderFormat,
    /// `RateLimit-Policy` of a request to which all policies apply, if it is always the
    /// same.
    policy: Option<HeaderValue>,
    /// How many policies there are.
    policies: usize,
    /// Their names and quotas, if a control document may change them.
    known: Vec<(Name, Interned<Quota>)>,
    /// Partition keys are written into the fields, so no value is always the same.
    has_partition_keys: bool,
    /// Whether shadow policies are announced, too.
    with_shadows: bool,
    /// Fields of the inner service that clients do not see.
    hidden: Vec<HeaderName>,
}

/// Which code set the fields that a response already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetBy {
    /// An inner layer or service. Lists are appended to its lists. If one of its fields
    /// is not a list, no field is added.
    InnerService,
    /// The user's hook. Each field that it did not set is added.
    Hook,
}

impl Fields {
    /// For decisions of any policies.
    pub(super) fn new(format: HeaderFormat, with_shadows: bool) -> Self {
        Self {
            format,
            with_shadows,
            ..Self::default()
        }
    }

    /// For decisions of these enforced policies. `may_differ`: a control document may change their
    /// quotas, or which policies are enforced.
    pub(super) fn with_policies(
        format: HeaderFormat,
        policies: Vec<(Name, Interned<Quota>)>,
        has_partition_keys: bool,
        may_differ: bool,
    ) -> Self {
        let policy = match (format, &*policies) {
            (HeaderFormat::Draft10, policies) => ietf::policy_field(policies),
            (HeaderFormat::Draft6 | HeaderFormat::Draft7, [(_, quota)])
                if quota.penalty().is_none() =>
            {
                legacy::policy_field(**quota)
            }
            // The policy that is reported differs from decision to decision, or there is no such
            // field.
            _ => None,
        };
        Self {
            format,
            policy,
            policies: policies.len(),
            known: if may_differ { policies } else { Vec::new() },
            has_partition_keys,
            ..Self::default()
        }
    }

    /// Hides these fields of the inner service from clients.
    pub(super) fn hiding(mut self, hidden: impl Iterator<Item = HeaderName>) -> Self {
        self.hidden = hidden.collect();
        self
    }

    /// Removes what clients do not see.
    pub(super) fn hide(&self, headers: &mut HeaderMap) {
        for name in &self.hidden {
            headers.remove(name);
        }
    }

    /// Each request's future holds a copy, which costs nothing if it is interned.
    pub(super) fn intern(self) -> Interned<Self> {
        static FIELDS: InternTable<Fields> = InternTable::new();

        FIELDS.intern(Self {
            policy: self.policy.map(constant),
            ..self
        })
    }

    /// Writes the fields of a decision.
    pub(super) fn write(&self, decision: &Decision, headers: &mut HeaderMap, existing: SetBy) {
        let policy = self.constant_policy(decision);
        match self.format {
            HeaderFormat::Draft10 => {
                ietf::write(decision, policy, self.with_shadows, headers, existing);
            }
            format => legacy::write(decision, format, policy, headers, existing),
        }
    }

    /// Returns `RateLimit-Policy`, if it is the same for each decision like this one.
    fn constant_policy(&self, decision: &Decision) -> Option<&HeaderValue> {
        // A decision on a store failure lists no policy. Its field has all that may apply.
        let is_constant = decision.source() == Source::StoreFailure
            || (decision.policies().len() == self.policies
                && !self.has_partition_keys
                && self.has_policies_of(decision));
        self.policy.as_ref().filter(|_| is_constant)
    }

    fn has_policies_of(&self, decision: &Decision) -> bool {
        let mut both = decision.policies().zip(&self.known);
        both.all(|(policy, (name, quota))| {
            policy.interned_name() == name && policy.has_quota(quota)
        })
    }
}

/// Returns the value as a constant, whose copies count nothing. All threads would write to
/// the count.
#[expect(clippy::expect_used, reason = "policy names are checked at build")]
fn constant(value: HeaderValue) -> HeaderValue {
    static VALUES: InternTable<HeaderValue> = InternTable::new();

    match VALUES.intern(value) {
        Interned::Static(value) => HeaderValue::from_static(
            value
                .to_str()
                .expect("names and numbers are printable ASCII"),
        ),
        Interned::Shared(value) => HeaderValue::clone(&value),
    }
}

/// Inserts a field unless it exists.
pub(super) fn insert_if_absent(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: Option<HeaderValue>,
) {
    if let Some(value) = value {
        headers.entry(name).or_insert(value);
    }
}

/// Returns the wait of a policy that denied, or else the time within which the remaining
/// units may be used. `None` if waiting does not help or the time is unknown.
fn effective_us(policy: &PolicyDecision) -> Option<u64> {
    if policy.quota().is_concurrency() {
        return None;
    }
    match policy.retry_us() {
        Some(0) => Some(policy.effective_window_us()),
        other => other,
    }
}

/// Returns units and whole seconds that are never looser than the quota. There are no
/// seconds if units do not come back with time.
fn per_whole_seconds(quota: Quota) -> (u64, Option<u64>) {
    if quota.is_concurrency() || (quota.limit() == 0 && quota.capacity() > 0) {
        return (quota.capacity(), None);
    }
    let period_ns = quota.period().as_nanos().max(1);
    let window_s = period_ns.div_ceil(1_000_000_000);
    let units = u128::from(quota.limit()) * window_s * 1_000_000_000 / period_ns;
    let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    (narrow(units), Some(narrow(window_s)))
}
