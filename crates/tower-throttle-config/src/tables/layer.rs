//! The tables `[layer.NAME]` and `[limiter.NAME]`.

use schemars::JsonSchema;
use serde::Deserialize;
use tower_throttle::{GrpcDenials, HeaderFormat};

use super::{PolicyName, Reader, StoreFailure, Text, Time, Variables, When, words::words};

/// A limiter, for use without HTTP.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 0))]
pub(crate) struct Limiter {
    /// The names of its policies. Default: all policies.
    pub(crate) policies: Option<Vec<PolicyName>>,
    /// Whether it has the lists of `[lists]`. Default: true.
    pub(crate) lists: Option<bool>,
    /// What happens while the store cannot decide, for policies without a setting of their own.
    /// Default: `local`.
    pub(crate) on_store_failure: Option<StoreFailure>,
    /// Whether all its policies only count what they would deny. Default: false.
    pub(crate) shadow_all: Option<bool>,
    /// How many callers of this process may wait for one bucket at a time. Default: 65536.
    pub(crate) max_waiting: Option<usize>,
    /// Its name in metrics. Default: the name of this table.
    pub(crate) name: Option<Text>,
    /// The observer that receives each request or check after it was counted. Default: nothing.
    pub(crate) observe: Option<Reader>,
}

/// A layer, for HTTP.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 0))]
pub(crate) struct Layer {
    /// The fields that limiters have, too.
    #[serde(flatten)]
    pub(crate) common: Limiter,
    /// Which requests it limits. Default: all.
    pub(crate) when: Option<When>,
    /// Which header fields report the limits to clients. Default: `draft10`.
    pub(crate) headers: Option<Headers>,
    /// Which forwarded responses have these fields. Default: all.
    pub(crate) headers_when: Option<Reader>,
    /// Adds the parameter `pk`, a hash of the key with this secret. Default: no parameter.
    pub(crate) partition_key_secret: Option<Variables>,
    /// Adds a random duration up to this one to `Retry-After`. Default: none.
    pub(crate) retry_after_jitter: Option<Time>,
    /// Whether handlers and outer layers find the decision in the extensions. Default: false.
    pub(crate) decision_in_extensions: Option<bool>,
    /// How long a request without room may wait before it is denied. Default: it is denied at once.
    pub(crate) wait_up_to: Option<Time>,
    /// Whether shadow policies are in the header fields. Default: false.
    pub(crate) shadow_with_headers: Option<bool>,
    /// Which requests are denied with a gRPC status. Default: `auto`.
    pub(crate) grpc_denials: Option<Grpc>,
    /// The closure that makes the response to a denied request. Default: the layer's own response.
    pub(crate) on_denied: Option<Reader>,
    /// The names of callers that are often denied. Default: a fingerprint of the key.
    pub(crate) name_offenders: Option<Reader>,
}

words! {
    #[derive(Clone, Copy)]
    enum Headers for HeaderFormat {
        /// `RateLimit` and `RateLimit-Policy`, as draft 10 of the IETF.
        Draft10 = "draft10",
        /// `RateLimit` and `RateLimit-Policy`, as draft 7.
        Draft7 = "draft7",
        /// `RateLimit-Limit` and others, as draft 6.
        Draft6 = "draft6",
        /// `X-RateLimit-*`, with the reset as a UNIX time.
        XRateLimitEpoch = "x_rate_limit_epoch",
        /// `X-RateLimit-*`, with the reset in seconds from now.
        XRateLimitDelta = "x_rate_limit_delta",
        /// None but `Retry-After`.
        None = "none",
    }
}

words! {
    #[derive(Clone, Copy)]
    enum Grpc for GrpcDenials {
        /// gRPC calls over HTTP/2 and HTTP/3.
        Auto = "auto",
        /// These, and gRPC-Web calls.
        AutoWithWeb = "auto_with_web",
        /// All requests.
        Always = "always",
        /// None.
        Never = "never",
    }
}
