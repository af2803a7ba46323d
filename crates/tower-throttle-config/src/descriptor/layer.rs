//! The tables `[layer.NAME]` and `[limiter.NAME]`.

use super::{policy::ON_STORE_FAILURE, read::WHEN};
use crate::{
    form::{Form, Known, Table},
    word::Word,
};

macro_rules! both {
    ($builder:literal, [$($more:expr),* $(,)?]) => {
        &[
            Known::new("policies", &Form::List(&Form::PolicyName), "The names of its policies.")
                .default("all policies")
                .code(&[concat!($builder, "::policy")]),
            Known::new("lists", &Form::Flag, "Whether it has the lists of `[lists]`.")
                .default("true")
                .code(&[concat!($builder, "::lists")]),
            Known::new("on_store_failure", &Form::Words(ON_STORE_FAILURE), "What happens while the store cannot decide, for policies that do not say it themselves.")
                .default("`local`")
                .code(&[concat!($builder, "::on_store_failure")]),
            Known::new("shadow_all", &Form::Flag, "Whether all its policies only count what they would deny.")
                .default("false")
                .code(&[concat!($builder, "::shadow_all")]),
            Known::new("max_waiting", &Form::Whole(0, usize::MAX as u64), "How many callers of this process may wait for one bucket at a time.")
                .default("65536")
                .code(&[concat!($builder, "::max_waiting")]),
            Known::new("name", &Form::Text, "Its name in metrics.")
                .default("the name of this table")
                .code(&[concat!($builder, "::name")]),
            Known::new("observe", &Form::Reader("observe"), "What sees each request or check after it was counted.")
                .default("nothing")
                .code(&[concat!($builder, "::observe")]),
            $($more),*
        ]
    };
}

pub(super) static LIMITER: Table = Table::new(
    "limiter",
    "A limiter, for use without HTTP.",
    both!("LimiterBuilder", []),
)
.may_be_empty();

pub(super) static LAYER: Table = Table::new(
    "layer",
    "A layer, for HTTP.",
    both!(
        "RateLimitLayerBuilder",
        [
            Known::new("when", &WHEN, "Which requests it limits.")
                .default("all")
                .code(&["RateLimitLayerBuilder::when"]),
            Known::new(
                "headers",
                &Form::Words(HEADERS),
                "Which header fields report the limits to clients."
            )
            .default("`draft10`")
            .code(&["RateLimitLayerBuilder::headers"]),
            Known::new(
                "headers_when",
                &Form::Reader("headers_when"),
                "Which forwarded responses have these fields."
            )
            .default("all")
            .code(&["RateLimitLayerBuilder::headers_when"]),
            Known::new(
                "partition_key_secret",
                &Form::WithVariables,
                "Adds the parameter `pk`, a hash of the key with this secret."
            )
            .default("no parameter")
            .code(&["RateLimitLayerBuilder::partition_key_secret"]),
            Known::new(
                "retry_after_jitter",
                &Form::Duration,
                "Adds a random duration up to this one to `Retry-After`."
            )
            .default("none")
            .code(&["RateLimitLayerBuilder::retry_after_jitter"]),
            Known::new(
                "decision_in_extensions",
                &Form::Flag,
                "Whether handlers and outer layers find the decision in the extensions."
            )
            .default("false")
            .code(&["RateLimitLayerBuilder::decision_in_extensions"]),
            Known::new(
                "wait_up_to",
                &Form::Duration,
                "How long a request without room may wait before it is denied."
            )
            .default("it is denied at once")
            .code(&["RateLimitLayerBuilder::wait_up_to"]),
            Known::new(
                "shadow_with_headers",
                &Form::Flag,
                "Whether shadow policies are in the header fields."
            )
            .default("false")
            .code(&["RateLimitLayerBuilder::shadow_with_headers"]),
            Known::new(
                "grpc_denials",
                &Form::Words(GRPC_DENIALS),
                "Which requests are denied with a gRPC status."
            )
            .default("`auto`")
            .code(&["RateLimitLayerBuilder::grpc_denials"]),
            Known::new(
                "on_denied",
                &Form::Reader("on_denied"),
                "What makes the response to a denied request."
            )
            .default("the layer's own response")
            .code(&["RateLimitLayerBuilder::on_denied"]),
            Known::new(
                "name_offenders",
                &Form::Reader("name_offenders"),
                "What names callers that are often denied."
            )
            .default("a fingerprint of the key")
            .code(&["RateLimitLayerBuilder::name_offenders"]),
        ]
    ),
)
.may_be_empty();

const HEADERS: &[Word] = &[
    Word::new(
        "draft10",
        "`RateLimit` and `RateLimit-Policy`, as draft 10 of the IETF.",
    ),
    Word::new("draft7", "`RateLimit` and `RateLimit-Policy`, as draft 7."),
    Word::new("draft6", "`RateLimit-Limit` and others, as draft 6."),
    Word::new(
        "x_rate_limit_epoch",
        "`X-RateLimit-*`, with the reset as a UNIX time.",
    ),
    Word::new(
        "x_rate_limit_delta",
        "`X-RateLimit-*`, with the reset in seconds from now.",
    ),
    Word::new("none", "None but `Retry-After`."),
];

const GRPC_DENIALS: &[Word] = &[
    Word::new("auto", "gRPC calls over HTTP/2 and HTTP/3."),
    Word::new("auto_with_web", "These, and gRPC-Web calls."),
    Word::new("always", "All requests."),
    Word::new("never", "None."),
];
