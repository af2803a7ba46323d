//! Errors as the API answers them: problem documents (RFC 9457) with a code.

use std::{borrow::Cow, time::Duration};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde_json::json;
use tower_throttle::control::ControlError;

/// An error. `Result<T, Problem>` is what handlers return.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    /// What is wrong with this request, for people. It must not hold a key.
    pub(crate) detail: Cow<'static, str>,
    /// `Retry-After`, in whole seconds, rounded up.
    pub(crate) retry_after: Option<Duration>,
    /// Whether what was asked may have happened all the same.
    pub(crate) is_in_doubt: bool,
}

impl Code {
    /// Returns this error with a `detail` of its own: what is wrong with this request. It must not
    /// hold a key.
    pub(crate) fn because(self, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem {
            detail: detail.into(),
            ..self.into()
        }
    }

    /// Returns this error unless what it asks for holds.
    pub(crate) fn unless(self, holds: bool) -> Result<(), Problem> {
        holds.then_some(()).ok_or_else(|| self.into())
    }
}

impl From<Code> for Problem {
    /// Creates an error whose `detail` is the usual one.
    fn from(code: Code) -> Self {
        Self {
            code,
            detail: code.row().2.into(),
            retry_after: None,
            is_in_doubt: false,
        }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let code = match error.store_error() {
            Some(_) => Code::StoreUnavailable,
            None if error.is_mistake() => Code::Malformed,
            None => Code::NotChanged,
        };
        Self {
            is_in_doubt: error.may_have_happened(),
            ..code.because(error.to_string())
        }
    }
}

const TYPE: &str =
    "https://github.com/tower-throttle/tower-throttle/blob/main/docs/errors.md#the-admin-api";

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code, _) = self.code.row();
        let document = json!({
            "type": TYPE,
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": self.detail,
            "code": code,
        });
        let kind = [("content-type", "application/problem+json")];
        let seconds = |wait: Duration| wait.as_nanos().div_ceil(1_000_000_000).max(1);
        let seconds = self.retry_after.map(|wait| seconds(wait).to_string());
        let wait = seconds.map(|seconds| [("retry-after", seconds)]);
        let is_unknown = status == StatusCode::UNAUTHORIZED;
        let challenge = is_unknown.then_some([("www-authenticate", "Bearer")]);
        (status, kind, wait, challenge, Json(document)).into_response()
    }
}

/// Gives each error its status, its code and its usual detail: `docs/errors.md` explains all.
macro_rules! codes {
    ($($variant:ident => $status:ident $name:literal $detail:literal,)+) => {
        /// What an error is. Each has a row in `docs/errors.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($variant),+
        }

        impl Code {
            /// Returns its status, its name and its usual detail.
            const fn row(self) -> (StatusCode, &'static str, &'static str) {
                match self {
                    $(Self::$variant => (StatusCode::$status, $name, $detail),)+
                }
            }
        }

        #[cfg(test)]
        const CODES: &[(&str, StatusCode)] = &[$(($name, StatusCode::$status)),+];
    };
}

codes! {
    NotFound => NOT_FOUND "not-found" "there is nothing at this path",
    MethodNotAllowed => METHOD_NOT_ALLOWED "method-not-allowed" "this path has other methods: see the field Allow",
    Host => BAD_REQUEST "host" "the request names several hosts, or one that cannot be read",
    NoPeer => INTERNAL_SERVER_ERROR "no-peer" "the request carries no peer address; serve the router with `into_make_service_with_connect_info::<SocketAddr>()`",
    NotLoopback => FORBIDDEN "not-loopback" "only programs on the machine of the server have access",
    HostNotLocal => FORBIDDEN "host-not-local" "open the page as localhost, 127.0.0.1 or [::1]",
    HostNotListed => FORBIDDEN "host-not-listed" "the page does not answer to this host name; the application would have to list it in `Admin::hosts(..)`",
    Forwarded => FORBIDDEN "forwarded" "the request came through a proxy, and only programs on the machine of the server have access",
    CrossOrigin => FORBIDDEN "cross-origin" "another site sent the request, a proxy replaced the field Host, or a form has no field Origin; programs send JSON with a token",
    NoAccess => FORBIDDEN "no-access" "the application gives this request no access",
    NoToken => UNAUTHORIZED "no-token" "log in on the page, or send the token as `Authorization: Bearer ..`",
    WrongToken => UNAUTHORIZED "wrong-token" "the token is wrong",
    TooManyWrongTokens => TOO_MANY_REQUESTS "too-many-wrong-tokens" "too many wrong tokens came from this address, or from all addresses together; wait up to a minute",
    TooManyCalls => TOO_MANY_REQUESTS "too-many-calls" "more than 10 calls a second",
    ContentType => UNSUPPORTED_MEDIA_TYPE "content-type" "the body must be `application/json`",
    NoCustomHeader => FORBIDDEN "no-custom-header" "the request must have the field `x-tower-throttle: 1`",
    ReadOnly => FORBIDDEN "read-only" "nothing can be changed here; the application would have to call `Admin::allow_changes()`, with another access than `Access::loopback()`",
    TooLarge => PAYLOAD_TOO_LARGE "too-large" "the body has more than 16 KiB",
    TooSlow => REQUEST_TIMEOUT "too-slow" "the body took more than 10 seconds",
    Malformed => BAD_REQUEST "malformed" "the body is not what this path takes",
    UnknownPolicy => NOT_FOUND "unknown-policy" "no layer and no limiter has this policy",
    UnknownLimiter => NOT_FOUND "unknown-limiter" "there is no layer and no limiter of this name",
    SharedPolicy => CONFLICT "shared-policy" "the policy has one bucket for all callers; name it as `everyone:`",
    CannotOverride => CONFLICT "cannot-override" "the policy does not take this quota",
    CannotShadow => CONFLICT "cannot-shadow" "the policy cannot be a shadow policy",
    NoControl => CONFLICT "no-control" "there is no control document; the application would have to give it to `Admin::control(..)`, and to the builders of its limits",
    NotFollowed => CONFLICT "not-followed" "no layer and no limiter follows the control document under this policy; build them with `.control(..)`",
    NotChanged => CONFLICT "not-changed" "the control document was not changed",
    StoreUnavailable => SERVICE_UNAVAILABLE "store-unavailable" "the store does not answer",
    Panicked => INTERNAL_SERVER_ERROR "panicked" "code of the application panicked while it was asked: a key extractor or a store, for example",
}

#[cfg(test)]
mod tests {
    use super::CODES;
    use crate::tests::read_page;

    /// One row of the page for each code, and no others.
    #[test]
    #[allow(clippy::expect_used)]
    fn the_page_of_errors_lists_every_code_of_the_api_once() {
        let Some(page) = read_page("docs/errors.md") else {
            return;
        };
        let table = page
            .split("## ")
            .find(|part| part.starts_with("The admin API"));
        let rows = table.expect("its table").lines();
        let listed = rows.filter_map(|row| {
            let (code, rest) = row.strip_prefix("| `")?.split_once("` | ")?;
            Some((code, rest.split(' ').next()?))
        });
        let codes = CODES.iter().map(|(name, status)| (*name, status.as_str()));
        assert_eq!(listed.collect::<Vec<_>>(), codes.collect::<Vec<_>>());
    }
}
