//! Response bodies, and the header that names who decided.

use std::sync::{Arc, LazyLock};

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
    Decision, Limiter, PolicyDecision, RateLimitLayer, RequestHead, Source,
    key::KeyExtractor,
    metrics::{PROMETHEUS_CONTENT_TYPE, to_prometheus},
};

use crate::routes::caller;

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

#[derive(Clone)]
pub(crate) struct View {
    pub(crate) limiter: Limiter,
    /// The layers of all routes. `limiter` is not among them: it only peeks, which is not counted.
    pub(crate) layers: Arc<[RateLimitLayer]>,
    pub(crate) store_name: &'static str,
}

impl View {
    /// Reads what the caller has left in every bucket. Charges nothing.
    async fn remaining(&self, request: Request) -> Result<Value, (StatusCode, String)> {
        let key = caller()
            .extract(&RequestHead::from(&request))
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let decision = self.limiter.peek(key).await;
        let decision =
            decision.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
        Ok(json!({ "store": self.store_name, "policies": policies(&decision) }))
    }
}

pub(crate) async fn remaining(State(view): State<View>, request: Request) -> Response {
    match view.remaining(request).await {
        Ok(remaining) => Json(remaining).into_response(),
        Err((status, error)) => (status, Json(json!({ "error": error }))).into_response(),
    }
}

/// Returns the numbers of all layers as one text for Prometheus.
pub(crate) async fn metrics(State(view): State<View>) -> impl IntoResponse {
    let snapshots: Vec<_> = view.layers.iter().map(RateLimitLayer::metrics).collect();
    let content_type = [(CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE)];
    (content_type, to_prometheus(&snapshots))
}

/// One file for the browser.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page.html")
        .replace("/* page.css */", include_str!("page.css"))
        .replace("/* responses.js */", include_str!("responses.js"))
        .replace("/* page.js */", include_str!("page.js"))
});

/// Returns the page with what the caller has left, so that the first paint shows it.
pub(crate) async fn page(State(view): State<View>, request: Request) -> Response {
    let remaining = view.remaining(request).await.unwrap_or_default();
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
