//! A decision as header fields.

use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{layer::HeadersWhen, settings::Settings};
use crate::{Decision, PolicyDecision, Quota, Source, Verdict, policy::Name};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Limit, remaining, reset.
const DRAFT_6: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// RFC 9651: an integer has at most 15 digits.
const LARGEST: u64 = 999_999_999_999_999;

/// Which header fields tell clients where they stand.
///
/// The IETF drafts and the older forms use some of the same names for other
/// things, so it is exactly one. All but the list tell of one policy only: the
/// one that refused with the longest wait, or else the one with the fewest
/// units left. Where such a field is there already, from a layer inside, it stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// `RateLimit-Policy: "api";q=100;w=60` and `RateLimit: "api";r=60;t=36`:
    /// the lists of draft-ietf-httpapi-ratelimit-headers-08 to -11, by the text
    /// of -10. All policies, of stacked layers too. This is the default.
    ///
    /// `t` is the time within which at most `r` may be used. A bucket whose
    /// burst differs from its limit says so in `tt-burst`.
    #[default]
    Draft10,
    /// `RateLimit: limit=100, remaining=60, reset=36` and
    /// `RateLimit-Policy: 100;w=60`: draft -07.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` and
    /// `RateLimit-Policy: 100;w=60`: drafts -04 to -06.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, and `X-RateLimit-Reset`
    /// as a UNIX time in seconds, as GitHub does.
    XRateLimitEpoch,
    /// The same with `X-RateLimit-Reset` in seconds from now.
    XRateLimitDelta,
    /// None. `Retry-After` is sent all the same.
    None,
}

/// How a decision is told. Copied for each request, where a pointer to the
/// settings would be counted by all threads in one place.
pub(super) struct Style {
    form: Headers,
    /// `RateLimit-Policy`, where it is known before.
    policy: Option<HeaderValue>,
    when: Option<Arc<HeadersWhen>>,
}

impl Style {
    pub(super) fn of(decision: &Decision, settings: &Settings) -> Self {
        let applied = decision.policies().len();
        let is_known = decision.source() == Source::StoreFailure
            || (applied == settings.rules.len() && settings.partition_secret.is_none());
        let form = settings.answers.headers;
        Self {
            form,
            policy: (is_known && form == Headers::Draft10)
                .then(|| settings.policy_field.clone())
                .flatten(),
            when: settings
                .answers
                .headers_when
                .as_ref()
                .map(|when| Arc::clone(&when.0)),
        }
    }
}

/// Adds the fields to a response of the inner service.
#[inline]
pub(super) fn add_to_forwarded<B>(response: &mut Response<B>, decision: &Decision, style: Style) {
    let wanted = style.when.as_ref();
    if wanted.is_none_or(|wanted| wanted(response.status(), response.headers())) {
        add(response.headers_mut(), decision, style, Existing::GoesOn);
    }
}

/// What becomes of list fields that a response has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// They are of layers inside: ours come behind them.
    GoesOn,
    /// The user's hook set them: ours stay away.
    Stays,
}

/// Adds the fields of this layer.
pub(super) fn add(headers: &mut HeaderMap, decision: &Decision, style: Style, existing: Existing) {
    let mut fields = Fields { headers, existing };
    let form = style.form;
    if decision.source() == Source::StoreFailure {
        // The policies still hold; where the caller stands, nobody knows.
        if form == Headers::Draft10 {
            fields.list(RATELIMIT_POLICY, style.policy);
        }
        return;
    }
    if form == Headers::Draft10 {
        return fields.draft_10(decision, style.policy);
    }
    let Some(binding) = (form != Headers::None)
        .then(|| Binding::of(decision))
        .flatten()
    else {
        return;
    };
    match form {
        Headers::None | Headers::Draft10 => {}
        Headers::Draft7 => {
            let mut text = Text::default();
            text.push("limit=").number(binding.limit);
            text.push(", remaining=").number(binding.remaining);
            if let Some(reset) = binding.reset_s() {
                text.push(", reset=").number(reset);
            }
            fields.one(RATELIMIT, text.value());
            fields.one(RATELIMIT_POLICY, binding.policy());
        }
        Headers::Draft6 => {
            fields.three(DRAFT_6, &binding, binding.reset_s());
            fields.one(RATELIMIT_POLICY, binding.policy());
        }
        Headers::XRateLimitDelta => fields.three(X_RATELIMIT, &binding, binding.reset_s()),
        Headers::XRateLimitEpoch => {
            let at_us = |us: u64| decision.decided_at_us().saturating_add(us);
            let reset = binding.reset_us.map(|us| at_us(us).div_ceil(1_000_000));
            fields.three(X_RATELIMIT, &binding, reset);
        }
    }
}

struct Fields<'a> {
    headers: &'a mut HeaderMap,
    existing: Existing,
}

impl Fields<'_> {
    fn draft_10(&mut self, decision: &Decision, policy: Option<HeaderValue>) {
        let policy = policy.or_else(|| list(decision.policies(), policy_item));
        let limit = if decision.is_allowed() {
            list(decision.policies(), limit_item)
        } else {
            list(decision.refused(), |policy, text| {
                refused_item(policy, decision.verdict(), text);
            })
        };
        self.list(RATELIMIT_POLICY, policy);
        self.list(RATELIMIT, limit);
    }

    /// Layers add to a list.
    fn list(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        match (self.existing, value) {
            (Existing::GoesOn, Some(value)) => drop(self.headers.append(name, value)),
            (_, value) => self.one(name, value),
        }
    }

    /// The innermost layer has the word.
    fn one(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        if let Some(value) = value {
            self.headers.entry(name).or_insert(value);
        }
    }

    fn three(
        &mut self,
        [limit, remaining, reset]: [HeaderName; 3],
        binding: &Binding,
        reset_value: Option<u64>,
    ) {
        self.one(limit, number_value(binding.limit));
        self.one(remaining, number_value(binding.remaining));
        self.one(reset, reset_value.and_then(number_value));
    }
}

/// `RateLimit-Policy` for quotas that never change.
pub(super) fn policy_list<'a>(
    quotas: impl Iterator<Item = (&'a Name, Quota)>,
) -> Option<HeaderValue> {
    let value = list(quotas, |(name, quota), text| {
        quota_item(&name.quoted, quota, None, text);
    });
    value.map(|value| for_ever(&value).unwrap_or(value))
}

/// The same value, kept for the life of the process: copies of it are free,
/// where those of another are counted by all threads in one place, with each
/// request. `None` for all but the first [`KEPT`] different values.
fn for_ever(value: &HeaderValue) -> Option<HeaderValue> {
    static VALUES: Mutex<Vec<HeaderValue>> = Mutex::new(Vec::new());

    let mut values = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = values.iter().find(|known| *known == value) {
        return Some(known.clone());
    }
    let text = value.to_str().ok().filter(|_| values.len() < KEPT)?;
    let kept = HeaderValue::from_static(Box::leak(text.into()));
    values.push(kept.clone());
    Some(kept)
}

const KEPT: usize = 256;

fn list<T>(items: impl Iterator<Item = T>, write: impl Fn(T, &mut Text)) -> Option<HeaderValue> {
    let mut text = Text::default();
    for item in items {
        if !text.is_empty() {
            text.push(", ");
        }
        write(item, &mut text);
    }
    text.value()
}

fn policy_item(policy: &PolicyDecision, text: &mut Text) {
    quota_item(
        policy.quoted_name(),
        policy.quota(),
        policy.partition(),
        text,
    );
}

fn quota_item(quoted_name: &str, quota: Quota, partition: Option<&[u8; 12]>, text: &mut Text) {
    let (units, window_s) = per_whole_seconds(quota);
    text.push(quoted_name).push(";q=").number(units);
    if let Some(window_s) = window_s {
        text.push(";w=").number(window_s);
    }
    if quota.is_concurrency() {
        text.push(";qu=\"concurrent-requests\"");
    }
    if quota.capacity() != units && !quota.paces() {
        text.push(";tt-burst=").number(quota.capacity());
    }
    text.partition(partition);
}

fn limit_item(policy: &PolicyDecision, text: &mut Text) {
    standing_item(policy, effective_us(policy), text);
}

/// Where one policy makes the request impossible, no wait at another helps.
fn refused_item(policy: &PolicyDecision, verdict: Verdict, text: &mut Text) {
    let wait_us = effective_us(policy).filter(|_| verdict != Verdict::Impossible);
    standing_item(policy, wait_us, text);
}

fn standing_item(policy: &PolicyDecision, effective_us: Option<u64>, text: &mut Text) {
    text.push(policy.quoted_name())
        .push(";r=")
        .number(policy.remaining());
    if let Some(us) = effective_us {
        text.push(";t=").number(us.div_ceil(1_000_000));
    }
    text.partition(policy.partition());
}

/// The wait where it refused; else the time within which what remains may be
/// used; none where waiting is of no use, or nobody knows for how long.
fn effective_us(policy: &PolicyDecision) -> Option<u64> {
    if policy.quota().is_concurrency() {
        return None;
    }
    match policy.retry_us() {
        Some(0) => Some(policy.effective_window_us()),
        other => other,
    }
}

/// The quota in whole seconds, never looser than it is. No seconds where units
/// do not come back with time.
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

/// The one policy that the older forms tell of.
struct Binding {
    limit: u64,
    remaining: u64,
    reset_us: Option<u64>,
    quota: Quota,
}

impl Binding {
    fn of(decision: &Decision) -> Option<Self> {
        let policy = decision.binding()?;
        Some(Self {
            limit: policy.limit(),
            remaining: policy.remaining(),
            reset_us: effective_us(policy),
            quota: policy.quota(),
        })
    }

    fn reset_s(&self) -> Option<u64> {
        self.reset_us.map(|us| us.div_ceil(1_000_000))
    }

    fn policy(&self) -> Option<HeaderValue> {
        let (units, window_s) = per_whole_seconds(self.quota);
        let mut text = Text::default();
        text.number(units);
        if let Some(window_s) = window_s {
            text.push(";w=").number(window_s);
        }
        text.value()
    }
}

fn number_value(number: u64) -> Option<HeaderValue> {
    Some(number.min(LARGEST).into())
}

/// The text of a field. On the stack, where some policies fit; the value copies it once.
#[derive(Default)]
struct Text {
    short: ArrayVec<u8, 160>,
    /// All of it, once it is longer than that.
    long: Vec<u8>,
}

impl Text {
    fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    fn as_bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            &self.short
        } else {
            &self.long
        }
    }

    /// None for an empty list: such a field says nothing.
    fn value(&self) -> Option<HeaderValue> {
        let text = Some(self.as_bytes()).filter(|text| !text.is_empty())?;
        HeaderValue::from_bytes(text).ok()
    }

    #[inline]
    fn push(&mut self, text: &str) -> &mut Self {
        let is_short = self.long.is_empty();
        if !is_short || self.short.try_extend_from_slice(text.as_bytes()).is_err() {
            self.push_long(text);
        }
        self
    }

    #[cold]
    fn push_long(&mut self, text: &str) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short);
        }
        self.long.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.push(itoa::Buffer::new().format(number.min(LARGEST)))
    }

    fn partition(&mut self, partition: Option<&[u8; 12]>) {
        use base64::{Engine, engine::general_purpose::STANDARD};

        if let Some(partition) = partition {
            let encoded = STANDARD.encode(partition);
            self.push(";pk=:").push(&encoded).push(":");
        }
    }
}
