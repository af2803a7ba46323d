//! Response bodies, and the header that names who decided.

use std::{error::Error, sync::LazyLock};

use axum::{
    Extension, Json,
    extract::{OriginalUri, Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{Html, IntoResponse, Response},
};
use serde_json::{Value, json};
use tower_throttle::{
    Decision, PolicyDecision, RequestHead, Source, metrics::PROMETHEUS_CONTENT_TYPE,
};

use crate::limits::Limits;

/// Returns the decision that allowed the request. Nearly every limited route does.
pub(crate) async fn admitted(
    Extension(decision): Extension<Decision>,
    OriginalUri(uri): OriginalUri,
) -> Json<Value> {
    Json(json!({
        "route": uri.path(),
        "decided_by": decided_by(&decision),
        "held_ms": decision.delay().as_millis() as u64,
        "policies": policies(&decision),
    }))
}

fn decided_by(decision: &Decision) -> &'static str {
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

/// Reads what the caller has left in every bucket. Charges nothing.
async fn peek(limits: &Limits, request: Request) -> Result<Value, (StatusCode, String)> {
    let buckets = limits.buckets(&RequestHead::from(&request));
    let buckets =
        buckets.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let peeks = buckets
        .into_iter()
        .map(async |buckets| buckets.peek().await);
    let peeks: Vec<_> = peeks.map(tokio::spawn).collect();
    let unavailable = |error: &dyn Error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string());
    let mut left = Vec::new();
    for peek in peeks {
        let decision = peek.await.map_err(|error| unavailable(&error))?;
        let decision = decision.map_err(|error| unavailable(&error))?;
        left.extend(policies(&decision));
    }
    Ok(json!({ "store": limits.store_name, "policies": left }))
}

pub(crate) async fn remaining(State(limits): State<Limits>, request: Request) -> Response {
    match peek(&limits, request).await {
        Ok(remaining) => Json(remaining).into_response(),
        Err((status, error)) => (status, Json(json!({ "error": error }))).into_response(),
    }
}

/// Returns the numbers of all layers as one text for Prometheus.
pub(crate) async fn metrics(State(limits): State<Limits>) -> impl IntoResponse {
    let content_type = [(CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE)];
    (content_type, limits.to_prometheus())
}

/// One file for the browser.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page.html")
        .replace("/* page.css */", include_str!("page.css"))
        .replace("/* responses.js */", include_str!("responses.js"))
        .replace("/* page.js */", include_str!("page.js"))
});

/// Returns the page with what the caller has left, so that the first paint shows it.
pub(crate) async fn page(State(limits): State<Limits>, request: Request) -> Response {
    let remaining = peek(&limits, request).await.unwrap_or_default();
    let page = PAGE.replace("/* start */", &remaining.to_string());
    ([(CACHE_CONTROL, "no-store")], Html(page)).into_response()
}

fn policies(decision: &Decision) -> Vec<Value> {
    let one = |policy: &PolicyDecision| {
        json!({
            "name": policy.name(),
            "limit": policy.capacity(),
            "cost": policy.cost(),
            "remaining": policy.remaining(),
            "reset_after_ms": policy.reset_after().as_millis() as u64,
        })
    };
    decision.policies().map(one).collect()
}
