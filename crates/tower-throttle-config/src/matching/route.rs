//! Routes of axum.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use axum::extract::MatchedPath;

use crate::telemetry;
use tower_throttle::RequestHead;

/// After this many requests without a matched route, the application seems to be misconfigured.
const SUSPICIOUS: u32 = 100;

/// Routes as axum declares them. The condition holds if a request has matched one of them.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    routes: Vec<String>,
    /// How many requests had none, until one had.
    without: Arc<AtomicU32>,
}

/// Checks a route, as axum declares it: `/users/{id}`.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn parse_route(route: &str) -> Result<String, String> {
    match route.starts_with('/') {
        true => Ok(route.to_owned()),
        false => Err(format!(
            "route {route:?} does not begin with a slash; write it as in `Router::route`"
        )),
    }
}

impl Routes {
    pub(crate) fn new(routes: Vec<String>) -> Self {
        Self {
            routes,
            without: Arc::default(),
        }
    }

    /// A request that matched no route has none of them.
    pub(super) fn contain(&self, head: &RequestHead<'_>) -> bool {
        match head.extensions().get::<MatchedPath>() {
            Some(matched) => {
                self.without.store(u32::MAX, Ordering::Relaxed);
                self.routes.iter().any(|route| route == matched.as_str())
            }
            None => {
                let count = |without: u32| (without <= SUSPICIOUS).then(|| without + 1);
                let order = Ordering::Relaxed;
                if self.without.fetch_update(order, order, count) == Ok(SUSPICIOUS) {
                    telemetry::no_matched_route();
                }
                false
            }
        }
    }
}
