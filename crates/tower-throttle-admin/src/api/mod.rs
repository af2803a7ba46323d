//! The API: JSON below `/api/v1/`. `docs/admin-api.md` describes it.
//!
//! The page shows the same facts, from the same functions.

mod changes;
pub(super) mod look_up;
pub(super) mod numbers;
pub(super) mod policies;
pub(super) mod recent;
pub(super) mod request;
mod sampler;
pub(super) mod samples;
pub(super) mod status;

use std::ops::RangeInclusive;

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use http::Uri;
use serde_json::Value;
use tracing::Instrument;

use self::{
    changes::{Action, Change},
    policies::Policy,
    request::OF_CALLER,
};
use super::{
    Who,
    problem::{Code, Problem},
    shared::Handle,
};

/// How many callers `top` lists by default, and at most.
const USUAL_TOP: u64 = 20;
const MOST_TOP: u64 = 1_000;

/// Returns all routes below `/api/v1/`.
pub(super) fn routes() -> Router<Handle> {
    let api = Router::new()
        .route("/status", get(get_status))
        .route("/policies", get(get_policies))
        .route("/entries", get(get_entries))
        .route("/metrics", get(get_metrics))
        .route("/top", get(get_top))
        .route("/denials", get(get_denials))
        .route("/samples", get(get_samples))
        .route("/lookup", post(post_look_up))
        .route("/reset", change(Action::Reset))
        .route("/ban", change(Action::Ban))
        .route("/unban", change(Action::Unban))
        .route("/override", change(Action::Override))
        .route("/clear-override", change(Action::ClearOverride))
        .route("/mode", change(Action::Mode))
        .route("/clear-mode", change(Action::ClearMode));
    Router::new().nest("/api/v1", api)
}

async fn get_status(State(shared): State<Handle>, Extension(who): Extension<Who>) -> Json<Value> {
    Json(status::json(&shared, &who))
}

async fn get_policies(State(shared): State<Handle>) -> Json<Value> {
    let all = policies::policies(&shared.targets.all(), shared.control.as_ref());
    Json(all.iter().map(Policy::json).collect())
}

async fn get_entries(State(shared): State<Handle>) -> Json<Value> {
    let entries = policies::entries(shared.control.as_ref());
    Json(entries.iter().map(policies::entry_json).collect())
}

async fn get_metrics(State(shared): State<Handle>) -> Json<Value> {
    Json(shared.targets.all().iter().map(numbers::metrics).collect())
}

async fn get_top(State(shared): State<Handle>, uri: Uri) -> Result<Json<Value>, Problem> {
    let limit = number(&uri, "limit=", 1..=MOST_TOP, USUAL_TOP)?;
    let top = numbers::top(&shared.targets.all(), usize::try_from(limit).unwrap_or(0));
    Ok(Json(top.iter().map(numbers::top_json).collect()))
}

async fn get_denials(State(shared): State<Handle>, uri: Uri) -> Result<Json<Value>, Problem> {
    let since = number(&uri, "since=", 0..=u64::MAX, 0)?;
    let denials = numbers::denials(&shared.targets.all(), since);
    Ok(Json(denials.iter().map(numbers::denial_json).collect()))
}

async fn get_samples(State(shared): State<Handle>, uri: Uri) -> Result<Response, Problem> {
    let since = number(&uri, "since=", 0..=u64::MAX, 0)?;
    shared.look();
    let samples = shared.samples_after(since);
    Ok(([("content-type", "application/json")], samples).into_response())
}

/// Returns the number that a query has under its only name, or the usual one.
fn number(uri: &Uri, name: &str, range: RangeInclusive<u64>, usual: u64) -> Result<u64, Problem> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else {
        return Ok(usual);
    };
    let number = query.strip_prefix(name).and_then(|text| text.parse().ok());
    let number = number.filter(|number| range.contains(number));
    let (least, most) = range.into_inner();
    let usage = format!("the query has to be `{name}` and a number from {least} to {most}");
    number.ok_or_else(|| Code::Malformed.because(usage))
}

async fn post_look_up(State(shared): State<Handle>, body: Bytes) -> Result<Json<Value>, Problem> {
    let question = request::read(&body, OF_CALLER)?;
    let found = question.look_up(&shared).await?;
    Ok(Json(look_up::json(&found)))
}

/// Returns the route of a change.
fn change(action: Action) -> MethodRouter<Handle> {
    let make =
        async move |State(shared), Extension(who), body: Bytes| -> Result<Json<Value>, Problem> {
            let body = request::read(&body, action.row().1)?;
            let change = Change {
                action,
                body,
                shared,
                who,
            };
            // It is logged even if the client hangs up.
            let made = tokio::spawn(change.make().in_current_span()).await;
            made.map_err(|_| Code::Panicked)?.map(Json)
        };
    post(make)
}
