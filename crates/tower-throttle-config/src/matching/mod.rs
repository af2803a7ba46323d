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
    header::{HeaderCondition, HeaderValueIs},
    host::HostPattern,
    method::parse_method,
    path::PathPattern,
};
use crate::readers::When;
use tower_throttle::RequestHead;

/// Which requests are meant: those of which all conditions hold.
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

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Holds,
    Fails,
    /// Two servers could disagree.
    Unclear,
}

impl Matcher {
    /// Returns whether the policy applies: unless a condition clearly fails.
    pub(super) fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.find(head) != Finding::Fails
    }

    /// Returns whether all conditions hold. `None`: two servers could disagree.
    pub(super) fn holds(&self, head: &RequestHead<'_>) -> Option<bool> {
        match self.find(head) {
            Finding::Holds => Some(true),
            Finding::Fails => Some(false),
            Finding::Unclear => None,
        }
    }

    fn find(&self, head: &RequestHead<'_>) -> Finding {
        let mut all = Finding::Holds;
        for condition in &self.0 {
            match condition.find(head) {
                Finding::Holds => {}
                Finding::Fails => return Finding::Fails,
                Finding::Unclear => all = Finding::Unclear,
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
            Self::Route(routes) => routes.contain(head).into(),
            Self::Header(condition) => condition.find(head.headers()),
            Self::Not(matcher) => matcher.find(head).opposite(),
            Self::Reader(reader) => reader(head).into(),
        }
    }
}

impl Finding {
    const fn opposite(self) -> Self {
        match self {
            Self::Holds => Self::Fails,
            Self::Fails => Self::Holds,
            Self::Unclear => Self::Unclear,
        }
    }
}

impl From<bool> for Finding {
    fn from(holds: bool) -> Self {
        match holds {
            true => Self::Holds,
            false => Self::Fails,
        }
    }
}
