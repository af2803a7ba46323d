//! The switches of the page, for traffic and for the outage.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use serde_json::{Value, json};

use crate::{
    app::App,
    outage::Link,
    traffic::{Callers, Mode},
};

type Answer = (StatusCode, Json<Value>);

fn wrong(detail: &str) -> Answer {
    (StatusCode::BAD_REQUEST, Json(json!({ "detail": detail })))
}

fn word<'a>(order: &'a Value, name: &str) -> &'a str {
    order[name].as_str().unwrap_or_default()
}

/// Takes `{"mode": "steady", "as_me": true}`.
pub(crate) async fn traffic(
    State(app): State<App>,
    headers: HeaderMap,
    Json(order): Json<Value>,
) -> Answer {
    let mode: Mode = match word(&order, "mode").parse() {
        Ok(mode) => mode,
        Err(mistake) => return wrong(&mistake),
    };
    let callers = match order["as_me"].as_bool().unwrap_or_default() {
        true => Callers::Visitor(headers.get("x-api-key").cloned()),
        false => Callers::Own,
    };
    app.traffic.switch(mode, callers);
    (StatusCode::OK, Json(app.traffic.state()))
}

/// Takes `{"link": "frozen"}`.
pub(crate) async fn outage(State(app): State<App>, Json(order): Json<Value>) -> Answer {
    let link: Result<Link, String> = word(&order, "link").parse();
    match link {
        Err(mistake) => wrong(&mistake),
        Ok(link) if app.outage.switch(link) => (StatusCode::OK, Json(app.outage.state())),
        Ok(_) => (StatusCode::CONFLICT, Json(app.outage.state())),
    }
}
