//! `when`: which requests a policy or a layer applies to.
//!
//! All conditions must hold. Where two servers could understand a request in different ways, a
//! condition is unclear: it neither holds nor does its opposite, and the policy applies. So a
//! client that sends `//login` or two `Host` fields does not get past a limit.

mod header;
mod host;
mod method;
mod path;
#[cfg(feature = "axum")]
mod route;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::Method;

#[cfg(feature = "axum")]
pub(super) use self::route::{Routes, parse_route};
pub(super) use self::{
    header::HeaderCondition, host::HostPattern, method::parse_method, path::PathPattern,
};
use crate::readers::When;
use tower_throttle::RequestHead;

/// Matches the requests for which all conditions hold.
#[derive(Clone, Default)]
pub(super) struct Matcher(pub(super) Vec<Condition>);

/// A condition on the head of a request.
#[derive(Clone)]
pub(super) enum Condition {
    /// It is one of them.
    Method(Vec<Method>),
    /// One of them matches.
    Host(Vec<HostPattern>),
    /// One of them matches.
    Path(Vec<PathPattern>),
    #[cfg(feature = "axum")]
    Route(Routes),
    Header(HeaderCondition),
    /// Not all conditions of the matcher hold.
    Not(Matcher),
    Reader(Arc<When>),
}

/// Whether a condition holds. `None`: two servers could disagree.
type Finding = Option<bool>;

impl Matcher {
    /// Returns whether the policy applies: unless a condition clearly fails.
    pub(super) fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.find(head) != Some(false)
    }

    /// Returns whether all conditions hold.
    pub(super) fn find(&self, head: &RequestHead<'_>) -> Finding {
        let mut all = Some(true);
        for condition in &self.0 {
            match condition.find(head) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => all = None,
            }
        }
        all
    }
}

impl Condition {
    fn find(&self, head: &RequestHead<'_>) -> Finding {
        match self {
            Self::Method(methods) => method::find(methods, head.method()),
            Self::Host(patterns) => host::find(patterns, head),
            Self::Path(patterns) => path::find(patterns, head.uri().path()),
            #[cfg(feature = "axum")]
            Self::Route(routes) => Some(routes.contain(head)),
            Self::Header(condition) => condition.find(head.headers()),
            Self::Not(matcher) => matcher.find(head).map(|holds| !holds),
            Self::Reader(reader) => Some(reader(head)),
        }
    }
}
