//! The routes.

use std::error::Error;

use axum::{
    Json, Router,
    middleware::{from_fn, from_fn_with_state, map_response},
    routing::{get, post},
};
use serde_json::json;

use crate::{
    answers::{add_decided_by, admitted, metrics},
    app::App,
    guard::only_this_page,
    history::record,
    look::remaining,
    page,
    settled::{any_page, login, tokens},
    slow::slow,
    switches,
};

pub(crate) fn router(app: App) -> Result<Router, Box<dyn Error>> {
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
        ("penalty", get(any_page)),
    ];
    let mut limited = Router::new();
    for (name, handler) in routes {
        let layer = app.limits.layer(name)?;
        // With `route_layer`, a request with the wrong method gets 405 and is not charged.
        limited = limited.route(&format!("/{name}"), handler.route_layer(layer));
    }
    let limited = limited
        .layer(map_response(add_decided_by))
        .layer(from_fn_with_state(app.clone(), record));
    let switches = Router::new()
        .route("/traffic", post(switches::traffic))
        .route("/outage", post(switches::outage))
        .layer(from_fn(only_this_page));
    Ok(Router::new()
        .merge(page::router())
        .route("/health", get(async || Json(json!({ "status": "ok" }))))
        .route("/metrics", get(metrics))
        .route("/api/remaining", get(remaining))
        .nest("/api", limited)
        .nest("/switches", switches)
        .nest_service("/admin", app.limits.admin()?)
        .with_state(app))
}
