//! A decision as header fields.

use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::settings::Settings;
use crate::{Decision, PolicyDecision, Quota, Source, Verdict};

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

/// Adds the fields to a response of the inner service, and the decision to its extensions.
pub(super) fn add_to_forwarded<B>(
    response: &mut Response<B>,
    decision: &Decision,
    outer: Option<&Decision>,
    settings: &Settings,
) {
    let wanted = settings.answers.headers_when.as_ref();
    if wanted.is_none_or(|wanted| (wanted.0)(response.status(), response.headers())) {
        add(response.headers_mut(), decision, settings, Existing::GoesOn);
    }
    // A layer inside has put the decisions of both there.
    if response.extensions().get::<Decision>().is_none() {
        response.extensions_mut().insert(decision.within(outer));
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
pub(super) fn add(
    headers: &mut HeaderMap,
    decision: &Decision,
    settings: &Settings,
    existing: Existing,
) {
    let add_list = |headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>| match (
        value, existing,
    ) {
        (Some(value), Existing::GoesOn) => drop(headers.append(name, value)),
        (value, _) => insert(headers, name, value),
    };
    if decision.source() == Source::StoreFailure {
        // The policies still hold; where the caller stands, nobody knows.
        if settings.answers.headers == Headers::Draft10 {
            add_list(headers, RATELIMIT_POLICY, settings.policy_field.clone());
        }
        return;
    }
    match settings.answers.headers {
        Headers::None => {}
        Headers::Draft10 => {
            let applied = decision.policies().len();
            let policy = match &settings.policy_field {
                Some(value)
                    if applied == settings.rules.len() && settings.partition_secret.is_none() =>
                {
                    Some(value.clone())
                }
                _ => list_value(decision.policies(), policy_item),
            };
            let limit = if decision.is_allowed() {
                list_value(decision.policies(), limit_item)
            } else {
                list_value(decision.refused(), |policy, text| {
                    refused_item(policy, decision.verdict(), text);
                })
            };
            add_list(headers, RATELIMIT_POLICY, policy);
            add_list(headers, RATELIMIT, limit);
        }
        Headers::Draft7 => {
            if let Some(binding) = Binding::of(decision) {
                let Binding {
                    limit, remaining, ..
                } = binding;
                let mut text = Text::default();
                text.push("limit=").number(limit);
                text.push(", remaining=").number(remaining);
                if let Some(reset) = binding.reset_s() {
                    text.push(", reset=").number(reset);
                }
                insert(headers, RATELIMIT, value(&text));
                insert(headers, RATELIMIT_POLICY, binding.policy());
            }
        }
        Headers::Draft6 => {
            if let Some(binding) = Binding::of(decision) {
                let reset = binding.reset_s();
                insert_three(headers, DRAFT_6, &binding, reset);
                insert(headers, RATELIMIT_POLICY, binding.policy());
            }
        }
        Headers::XRateLimitDelta => {
            if let Some(binding) = Binding::of(decision) {
                insert_three(headers, X_RATELIMIT, &binding, binding.reset_s());
            }
        }
        Headers::XRateLimitEpoch => {
            if let Some(binding) = Binding::of(decision) {
                let at_us = |us: u64| decision.decided_at_us().saturating_add(us);
                let reset = binding.reset_us.map(|us| at_us(us).div_ceil(1_000_000));
                insert_three(headers, X_RATELIMIT, &binding, reset);
            }
        }
    }
}

/// `RateLimit-Policy` for quotas that never change.
pub(super) fn policy_list<'a>(
    quotas: impl Iterator<Item = (&'a str, Quota)>,
) -> Option<HeaderValue> {
    list_value(quotas, |(quoted_name, quota), text| {
        quota_item(quoted_name, quota, None, text);
    })
}

fn list_value<T>(
    items: impl Iterator<Item = T>,
    write: impl Fn(T, &mut Text),
) -> Option<HeaderValue> {
    let mut text = Text::default();
    for item in items {
        if !text.is_empty() {
            text.push(", ");
        }
        write(item, &mut text);
    }
    value(&text)
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
    text.push(";w=").number(window_s);
    if quota.capacity() != units {
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
    text.push(policy.quoted_name());
    text.push(";r=").number(policy.remaining());
    if let Some(us) = effective_us {
        text.push(";t=").number(us.div_ceil(1_000_000));
    }
    text.partition(policy.partition());
}

/// The wait where it refused; else the time within which what remains may be
/// used; none where waiting is of no use.
fn effective_us(policy: &PolicyDecision) -> Option<u64> {
    match policy.retry_us() {
        Some(0) => Some(policy.effective_window_us()),
        other => other,
    }
}

/// The quota in whole seconds, never looser than it is.
fn per_whole_seconds(quota: Quota) -> (u64, u64) {
    let period_ns = quota.period().as_nanos().max(1);
    let window_s = period_ns.div_ceil(1_000_000_000);
    let units = u128::from(quota.limit()) * window_s * 1_000_000_000 / period_ns;
    let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    (narrow(units), narrow(window_s))
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
        let longest_wait = |policy: &&PolicyDecision| policy.retry_us().unwrap_or(u64::MAX);
        let policy = if decision.is_allowed() {
            decision
                .policies()
                .min_by_key(|policy| (policy.remaining(), std::cmp::Reverse(policy.reset_after())))
        } else {
            decision.refused().max_by_key(longest_wait)
        }?;
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
        text.number(units).push(";w=").number(window_s);
        value(&text)
    }
}

fn insert_three(
    headers: &mut HeaderMap,
    [limit, remaining, reset]: [HeaderName; 3],
    binding: &Binding,
    reset_value: Option<u64>,
) {
    insert(headers, limit, number_value(binding.limit));
    insert(headers, remaining, number_value(binding.remaining));
    insert(headers, reset, reset_value.and_then(number_value));
}

fn number_value(number: u64) -> Option<HeaderValue> {
    Some(number.min(LARGEST).into())
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.entry(name).or_insert(value);
    }
}

/// None for an empty list: such a field says nothing.
fn value(text: &Text) -> Option<HeaderValue> {
    if text.is_empty() {
        return None;
    }
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

/// The text of a field. On the stack, where some policies fit; the value copies it once.
struct Text {
    short: [u8; Self::SHORT],
    length: usize,
    /// All of it, once it is longer than that.
    long: Vec<u8>,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            short: [0; Self::SHORT],
            length: 0,
            long: Vec::new(),
        }
    }
}

impl Text {
    const SHORT: usize = 160;

    fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    fn as_bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            self.short.get(..self.length).unwrap_or_default()
        } else {
            &self.long
        }
    }

    fn push(&mut self, text: &str) -> &mut Self {
        let end = self.length + text.len();
        match self.short.get_mut(self.length..end) {
            Some(place) if self.long.is_empty() => {
                place.copy_from_slice(text.as_bytes());
                self.length = end;
            }
            _ => {
                if self.long.is_empty() {
                    self.long = self.as_bytes().to_vec();
                }
                self.long.extend_from_slice(text.as_bytes());
            }
        }
        self
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
