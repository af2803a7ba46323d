//! What the routes answer at once.

use std::error::Error;

use axum::{
    Extension, Json,
    extract::{OriginalUri, Request, State},
    http::{HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tower_throttle::{Decision, Head, Limiter, PolicyDecision, Source, key::KeyExtractor};

use crate::routes::caller;

/// What nearly every limited route answers: the decision that let the request in.
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
        Source::Cache => "store: denied a moment ago",
        Source::Lease => "this process: the store was paid in advance",
        Source::Local => "this process: the store fails",
        _ => "nobody: the store fails",
    }
}

/// Every limited answer says it, denials too: a layer puts the decision into the
/// extensions of the response.
pub(crate) async fn tell_who_decided(mut response: Response) -> Response {
    if let Some(decision) = response.extensions().get::<Decision>() {
        let value = HeaderValue::from_static(decided_by(decision));
        response.headers_mut().insert("x-decided-by", value);
    }
    response
}

#[derive(Clone)]
pub(crate) struct View {
    pub(crate) limiter: Limiter,
    pub(crate) store_name: &'static str,
}

/// What this caller has left everywhere. Takes nothing.
pub(crate) async fn remaining(State(view): State<View>, request: Request) -> Response {
    let key = match caller().extract(&Head::from(&request)) {
        Ok(key) => key,
        Err(error) => return problem(StatusCode::INTERNAL_SERVER_ERROR, &error),
    };
    match view.limiter.peek(key).await {
        Ok(decision) => {
            let body = json!({ "store": view.store_name, "policies": policies(&decision) });
            Json(body).into_response()
        }
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

fn policies(decision: &Decision) -> Vec<Value> {
    let one = |policy: &PolicyDecision| {
        json!({
            "name": policy.name(),
            "limit": policy.limit(),
            "cost": policy.cost(),
            "remaining": policy.remaining(),
            "reset_after_ms": policy.reset_after().as_millis() as u64,
        })
    };
    decision.policies().map(one).collect()
}

fn problem(status: StatusCode, error: &dyn Error) -> Response {
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}
