//! The routes.

use std::error::Error;

use axum::{
    Json, Router,
    middleware::map_response,
    routing::{get, post},
};
use serde_json::json;

use crate::{
    answers::{add_decided_by, admitted, metrics, page, remaining},
    limits::Limits,
    settled::{login, tokens},
    slow::slow,
};

pub(crate) fn app(limits: Limits) -> Result<Router, Box<dyn Error>> {
    let routes = [
        ("token-bucket", get(admitted)),
        ("fixed-window", get(admitted)),
        ("stacked", get(admitted)),
        ("weighted", post(admitted)),
        ("leaky-bucket", get(admitted)),
        ("paced", get(admitted)),
        ("sliding-window", get(admitted)),
        ("sliding-log", get(admitted)),
        ("concurrency", get(slow)),
        ("login", post(login)),
        ("tokens", post(tokens)),
    ];
    let mut limited = Router::new();
    for (name, handler) in routes {
        let layer = limits.layer(name)?;
        // With `route_layer`, a request with the wrong method gets 405 and is not charged.
        limited = limited.route(&format!("/{name}"), handler.route_layer(layer));
    }
    Ok(Router::new()
        .route("/", get(page))
        .route("/health", get(async || Json(json!({ "status": "ok" }))))
        .route("/metrics", get(metrics))
        .route("/api/remaining", get(remaining))
        .nest("/api", limited.layer(map_response(add_decided_by)))
        .with_state(limits))
}
