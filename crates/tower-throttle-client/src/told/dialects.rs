//! The fields in which partners state limits, as data: [`BUILT_IN`], and those of an application.

use std::{borrow::Cow, sync::LazyLock};

use http::HeaderName;

/// What a number without a unit means in a field for a time. A date or a duration with units
/// (`2026-11-28T10:04:00Z`, `Sun, 06 Nov 1994 08:49:37 GMT`, `6m0s`) means what it is in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeUnit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds since 1970.
    EpochSeconds,
    /// Milliseconds since 1970.
    EpochMilliseconds,
    /// By its size, because partners use one name for all three: below 1,000,000,000 seconds from now,
    /// below 1,000,000,000,000 seconds since 1970, and from there on milliseconds since 1970.
    BySize,
}

/// Fields in which a partner states a limit: their names, and what their values mean.
///
/// [`OutboundLayer::dialect`](crate::OutboundLayer::dialect) adds one to those that the layer knows.
///
/// ```
/// use http::HeaderName;
/// use tower_throttle_client::{Dialect, TimeUnit};
///
/// let left = HeaderName::from_static("x-acme-calls-left");
/// let end = HeaderName::from_static("x-acme-window-end");
/// let calls = Dialect::window(left, end, TimeUnit::EpochSeconds).named("calls");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Dialect(pub(super) Form);

#[derive(Clone, Debug)]
pub(super) enum Form {
    /// How long to wait after a refusal.
    Wait(HeaderName, TimeUnit),
    /// `RateLimit` of the IETF.
    Structured(HeaderName),
    Window {
        name: Option<Cow<'static, str>>,
        remaining: HeaderName,
        reset: HeaderName,
        unit: TimeUnit,
    },
    /// `false`: no wait makes the call succeed.
    ShouldRetry(HeaderName),
    /// The name of the limit that a response is about.
    Scope(HeaderName),
}

impl Dialect {
    /// Reads how long to wait after a refusal, as in `Retry-After`.
    pub const fn wait(field: HeaderName, unit: TimeUnit) -> Self {
        Self(Form::Wait(field, unit))
    }

    /// Reads what is left of a window, and when it ends.
    pub const fn window(remaining: HeaderName, reset: HeaderName, unit: TimeUnit) -> Self {
        Self(Form::Window {
            name: None,
            remaining,
            reset,
            unit,
        })
    }

    /// Reads whether the call may be repeated: if the value is `false`, no wait makes it succeed.
    pub const fn should_retry(field: HeaderName) -> Self {
        Self(Form::ShouldRetry(field))
    }

    /// Reads the name of the limit that a response is about. Its pause is that of the
    /// [`Pause`](tower_throttle::Pause) policy of this name, if there is one.
    pub const fn scope(field: HeaderName) -> Self {
        Self(Form::Scope(field))
    }

    /// Names a [window](Self::window). Its pause is that of the [`Pause`](tower_throttle::Pause) policy
    /// of this name, if there is one. The other forms need no name, and keep none.
    pub fn named(mut self, window: impl Into<Cow<'static, str>>) -> Self {
        if let Form::Window { name, .. } = &mut self.0 {
            *name = Some(window.into());
        }
        self
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &HeaderName> {
        let (first, second) = match &self.0 {
            Form::Wait(field, _)
            | Form::Structured(field)
            | Form::ShouldRetry(field)
            | Form::Scope(field) => (field, None),
            Form::Window {
                remaining, reset, ..
            } => (remaining, Some(reset)),
        };
        [first].into_iter().chain(second)
    }
}

/// A dialect that the layer knows: which partners use it, and where they say so.
pub(super) struct Row {
    pub(super) dialect: Dialect,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the tests compare the guide with it")
    )]
    pub(super) sources: &'static [(&'static str, &'static str)],
}

const ANTHROPIC: (&str, &str) = (
    "Anthropic",
    "https://docs.anthropic.com/en/api/rate-limits#response-headers",
);
const LINEAR: (&str, &str) = ("Linear", "https://linear.app/developers/rate-limiting");
const OPENAI: (&str, &str) = (
    "OpenAI",
    "https://platform.openai.com/docs/guides/rate-limits",
);

/// The dialects that the layer knows. Of several waits, the first that is not zero counts, and of
/// several windows with one field for what is left, the first that can be read.
pub(super) static BUILT_IN: LazyLock<Vec<Row>> = LazyLock::new(|| {
    use TimeUnit::{BySize, EpochMilliseconds, Milliseconds, Seconds};

    let field = HeaderName::from_static;
    let row = |dialect, sources| Row { dialect, sources };
    let wait = |name, unit, sources| row(Dialect::wait(field(name), unit), sources);
    let window = |remaining, reset, unit, sources| {
        row(
            Dialect::window(field(remaining), field(reset), unit),
            sources,
        )
    };
    let named = |name, remaining, reset, unit, sources| {
        let dialect = Dialect::window(field(remaining), field(reset), unit);
        row(dialect.named(name), sources)
    };
    let structured = |name, sources| row(Dialect(Form::Structured(field(name))), sources);
    let should_retry = |name, sources| row(Dialect::should_retry(field(name)), sources);
    let scope = |name, sources| row(Dialect::scope(field(name)), sources);
    vec![
        wait(
            "retry-after-ms",
            Milliseconds,
            &[(
                "OpenAI, Azure OpenAI",
                "https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py",
            )],
        ),
        wait(
            "x-ms-retry-after-ms",
            Milliseconds,
            &[(
                "Azure Cosmos DB",
                "https://learn.microsoft.com/en-us/rest/api/cosmos-db/common-cosmosdb-rest-response-headers",
            )],
        ),
        wait(
            "retry-after",
            Seconds,
            &[
                (
                    "RFC 9110",
                    "https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3",
                ),
                ("Slack", "https://api.slack.com/apis/rate-limits"),
                ("Shopify", "https://shopify.dev/docs/api/usage/limits"),
                (
                    "Zoom, a date",
                    "https://developers.zoom.us/docs/api/rate-limits/",
                ),
            ],
        ),
        wait(
            "x-rate-limit-retry-after-seconds",
            Seconds,
            &[(
                "Bucket4j",
                "https://github.com/MarcGiffing/bucket4j-spring-boot-starter",
            )],
        ),
        wait(
            "x-ratelimit-retry-after",
            BySize,
            &[
                (
                    "MailerLite",
                    "https://developers-classic.mailerlite.com/docs/api-rate-limits",
                ),
                (
                    "Symfony, since 1970",
                    "https://github.com/symfony/symfony-docs/commit/9d189ef6b5e1c381923ac894ec3237ed45e620de",
                ),
            ],
        ),
        structured(
            "ratelimit",
            &[
                (
                    "IETF, drafts 7 to 11",
                    "https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/",
                ),
                (
                    "Atlassian",
                    "https://developer.atlassian.com/cloud/jira/platform/rate-limiting",
                ),
            ],
        ),
        window(
            "ratelimit-remaining",
            "ratelimit-reset",
            BySize,
            &[
                (
                    "IETF, drafts to 6",
                    "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-06",
                ),
                (
                    "GitLab",
                    "https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/#response-headers",
                ),
            ],
        ),
        window(
            "x-ratelimit-remaining",
            "x-ratelimit-reset-after",
            Seconds,
            &[(
                "Discord",
                "https://discord.com/developers/docs/topics/rate-limits",
            )],
        ),
        window(
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            BySize,
            &[
                (
                    "GitHub",
                    "https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api",
                ),
                (
                    "Reddit",
                    "https://support.reddithelp.com/hc/en-us/articles/16160319875092-Reddit-Data-API-Wiki",
                ),
                ("Mastodon", "https://docs.joinmastodon.org/api/rate-limits"),
                (
                    "Atlassian",
                    "https://developer.atlassian.com/cloud/jira/platform/rate-limiting",
                ),
                (
                    "Brave",
                    "https://api.search.brave.com/app/documentation/web-search/response-headers",
                ),
            ],
        ),
        window(
            "x-rate-limit-remaining",
            "x-rate-limit-reset",
            BySize,
            &[("X", "https://docs.x.com/x-api/fundamentals/rate-limits")],
        ),
        named(
            "requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
            Seconds,
            &[OPENAI],
        ),
        named(
            "tokens",
            "x-ratelimit-remaining-tokens",
            "x-ratelimit-reset-tokens",
            Seconds,
            &[OPENAI],
        ),
        named(
            "project-tokens",
            "x-ratelimit-remaining-project-tokens",
            "x-ratelimit-reset-project-tokens",
            Seconds,
            &[OPENAI],
        ),
        named(
            "requests",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
            BySize,
            &[ANTHROPIC],
        ),
        named(
            "tokens",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
            BySize,
            &[ANTHROPIC],
        ),
        named(
            "input-tokens",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
            BySize,
            &[ANTHROPIC],
        ),
        named(
            "output-tokens",
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
            BySize,
            &[ANTHROPIC],
        ),
        named(
            "requests",
            "x-ratelimit-requests-remaining",
            "x-ratelimit-requests-reset",
            EpochMilliseconds,
            &[LINEAR],
        ),
        named(
            "complexity",
            "x-ratelimit-complexity-remaining",
            "x-ratelimit-complexity-reset",
            EpochMilliseconds,
            &[LINEAR],
        ),
        named(
            "endpoint-requests",
            "x-ratelimit-endpoint-requests-remaining",
            "x-ratelimit-endpoint-requests-reset",
            EpochMilliseconds,
            &[LINEAR],
        ),
        window(
            "x-hubspot-ratelimit-remaining",
            "x-hubspot-ratelimit-interval-milliseconds",
            Milliseconds,
            &[(
                "HubSpot",
                "https://developers.hubspot.com/docs/developer-tooling/platform/usage-guidelines",
            )],
        ),
        should_retry(
            "x-should-retry",
            &[(
                "OpenAI, Anthropic",
                "https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py",
            )],
        ),
        should_retry(
            "stripe-should-retry",
            &[("Stripe", "https://docs.stripe.com/error-low-level")],
        ),
        scope(
            "x-ratelimit-scope",
            &[(
                "Discord",
                "https://discord.com/developers/docs/topics/rate-limits",
            )],
        ),
    ]
});

/// Starts of the names of [`BUILT_IN`] and of gRPC's fields. Most responses have none of them, and are
/// not searched for each name: the rows "calls to a partner" of the benchmark show it.
const STARTS: [&str; 9] = [
    "retry-after",
    "ratelimit",
    "x-ratelimit",
    "x-rate-limit",
    "x-ms-retry-after",
    "anthropic-ratelimit",
    "x-hubspot-ratelimit",
    "x-should-retry",
    "stripe-should-retry",
];

/// The dialects of a layer: those of the application, and then those that the layer knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialects(Vec<Dialect>);

impl Dialects {
    pub(crate) fn add(&mut self, dialect: Dialect) {
        self.0.push(dialect);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Dialect> {
        let built_in = BUILT_IN.iter().map(|row| &row.dialect);
        self.0.iter().chain(built_in)
    }

    /// Returns whether a field may state a limit.
    pub(super) fn may_have(&self, field: &HeaderName) -> bool {
        let name = field.as_str();
        let is_known = STARTS.iter().any(|start| name.starts_with(start));
        let is_own = || {
            self.0
                .iter()
                .flat_map(Dialect::fields)
                .any(|own| own == field)
        };
        is_known || name.starts_with("grpc-") || is_own()
    }
}
