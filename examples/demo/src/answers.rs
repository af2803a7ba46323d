//! Responses of limited routes, and the header that names who decided.

use axum::{
    Extension, Json,
    extract::{OriginalUri, State},
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tower_throttle::{Decision, PolicyDecision, Source, metrics::PROMETHEUS_CONTENT_TYPE};

use crate::app::App;

/// Returns the decision that allowed the request. Nearly every limited route does.
pub(crate) async fn admitted(
    Extension(decision): Extension<Decision>,
    OriginalUri(uri): OriginalUri,
) -> Json<Value> {
    Json(json!({
        "route": uri.path(),
        "decided_by": decided_by(&decision),
        "held_ms": decision.delay().as_millis() as u64,
        "policies": decision.policies().map(policy).collect::<Vec<_>>(),
    }))
}

pub(crate) fn decided_by(decision: &Decision) -> &'static str {
    match decision.source() {
        Source::Store => "store",
        Source::Cache => "store (cached denial)",
        Source::Lease => "this process (units leased from the store)",
        Source::Local => "this process (store unavailable)",
        _ => "no store and no limit (store unavailable)",
    }
}

/// Adds `x-decided-by` to each limited response, denials included: the layer puts
/// the decision into the response's extensions.
pub(crate) async fn add_decided_by(mut response: Response) -> Response {
    if let Some(decision) = response.extensions().get::<Decision>() {
        let value = HeaderValue::from_static(decided_by(decision));
        response.headers_mut().insert("x-decided-by", value);
    }
    response
}

pub(crate) fn policy(policy: &PolicyDecision) -> Value {
    json!({
        "name": policy.name(),
        "limit": policy.capacity(),
        "cost": policy.cost(),
        "remaining": policy.remaining(),
        "reset_after_ms": policy.reset_after().as_millis() as u64,
    })
}

/// Returns the numbers of all layers as one text for Prometheus.
pub(crate) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let content_type = [(CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE)];
    (content_type, app.limits.to_prometheus())
}
