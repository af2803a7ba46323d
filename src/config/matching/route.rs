//! Routes of axum.

use std::sync::Arc;

use axum::extract::MatchedPath;

use crate::{RequestHead, telemetry, util::absences::Absences};

/// Routes as axum declares them, of which a request has matched one.
#[derive(Clone, Debug)]
pub(in crate::config) struct Routes {
    routes: Vec<String>,
    absences: Arc<Absences>,
}

/// Checks a route, as axum declares it: `/users/{id}`.
///
/// # Errors
///
/// What is wrong with it.
pub(in crate::config) fn parse_route(route: &str) -> Result<String, String> {
    match route.starts_with('/') {
        true => Ok(route.to_owned()),
        false => Err(format!(
            "route {route:?} does not begin with a slash; write it as in `Router::route`"
        )),
    }
}

impl Routes {
    pub(in crate::config) fn new(routes: Vec<String>) -> Self {
        Self {
            routes,
            absences: Arc::default(),
        }
    }

    /// A request that matched no route has none of them.
    pub(super) fn contain(&self, head: &RequestHead<'_>) -> bool {
        match head.extensions().get::<MatchedPath>() {
            Some(matched) => {
                self.absences.record_presence();
                self.routes.iter().any(|route| route == matched.as_str())
            }
            None => {
                if self.absences.record_absence() {
                    telemetry::no_matched_route();
                }
                false
            }
        }
    }
}
