//! What the page shows of its caller: the buckets, the latest requests, and the switches.

use std::{error::Error, time::UNIX_EPOCH};

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tower_throttle::{Algorithm, Decision, PolicyDecision, RequestHead};

use crate::{
    answers::{decided_by, policy},
    app::App,
    guard::why_elsewhere,
    history::caller_of,
};

/// Returns what the caller has left in every bucket, and its latest requests: those after
/// `?after=N`. Charges nothing.
pub(crate) async fn remaining(State(app): State<App>, request: Request) -> Response {
    match look(&app, request).await {
        Ok(remaining) => Json(remaining).into_response(),
        Err((status, error)) => (status, Json(json!({ "error": error }))).into_response(),
    }
}

pub(crate) async fn look(app: &App, request: Request) -> Result<Value, (StatusCode, String)> {
    let caller = caller_of(request.headers(), request.extensions());
    let after = request.uri().query().and_then(|query| {
        let after = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("after="));
        after.and_then(|number| number.parse().ok())
    });
    let why_no_switches = why_elsewhere(&request);
    let buckets = app.limits.buckets(&RequestHead::from(&request));
    let buckets =
        buckets.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let peeks = buckets
        .into_iter()
        .map(async |buckets| buckets.peek().await);
    let peeks: Vec<_> = peeks.map(tokio::spawn).collect();
    let unavailable = |error: &dyn Error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string());
    let (mut policies, mut by) = (Vec::new(), "store");
    for peek in peeks {
        let decision = peek.await.map_err(|error| unavailable(&error))?;
        let decision = decision.map_err(|error| unavailable(&error))?;
        if !decided_by(&decision).starts_with("store") {
            by = decided_by(&decision);
        }
        let peeked = |policy: &PolicyDecision| peeked(policy, &decision);
        policies.extend(decision.policies().map(peeked));
    }
    let (latest, requests) = app.history.look(&caller, after.unwrap_or_default());
    Ok(json!({
        "caller": caller.to_string(),
        "store": app.limits.store_name,
        "decided_by": by,
        "policies": policies,
        "latest": latest,
        "requests": requests,
        "traffic": app.traffic.state(),
        "outage": app.outage.state(),
        "why_no_switches": why_no_switches,
    }))
}

/// Returns what the pictures need to compute how the bucket goes on.
fn peeked(peeked: &PolicyDecision, decision: &Decision) -> Value {
    let quota = peeked.quota();
    let at = decision.decided_at();
    let at = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let mut shown = policy(peeked);
    shown["quota"] = json!(quota.to_string());
    shown["rate"] = json!(quota.limit());
    shown["period_ms"] = json!(quota.period().as_millis() as u64);
    shown["banned"] = json!(quota.algorithm() == Algorithm::Penalty && peeked.remaining() == 0);
    shown["held"] = json!(peeked.held_by_all_requests());
    shown["at_ms"] = json!(at.map(|at| at.as_millis() as u64));
    shown
}
