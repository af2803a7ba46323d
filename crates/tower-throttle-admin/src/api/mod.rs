//! The API: JSON below `/api/v1/`. `docs/admin-api.md` describes it.
//!
//! The page shows the same facts, from the same functions.

mod changes;
pub(super) mod look_up;
pub(super) mod numbers;
pub(super) mod policies;
pub(super) mod recent;
pub(super) mod request;
pub(super) mod sampler;
pub(super) mod status;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{Query, State},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use http::{Uri, header::CONTENT_TYPE};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tracing::Instrument;

use self::{
    changes::{Action, Change},
    policies::Policy,
    request::OF_CALLER,
    status::Status,
};
use super::{
    Who,
    problem::{Code, Problem},
    shared::Handle,
};

/// How many callers `top` lists by default, and at most.
const USUAL_TOP: usize = 20;
const MOST_TOP: usize = 1_000;

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
    let inspected = shared.targets.all();
    Json(Status::new(&shared, &inspected, who).json(&inspected))
}

async fn get_policies(State(shared): State<Handle>) -> Json<Value> {
    let all = policies::policies(&shared.targets.all(), shared.control.as_ref(), None);
    Json(all.iter().map(Policy::json).collect())
}

async fn get_entries(State(shared): State<Handle>) -> Json<Value> {
    let entries = policies::entries(shared.control.as_ref());
    Json(entries.iter().map(policies::entry_json).collect())
}

async fn get_metrics(State(shared): State<Handle>) -> Json<Value> {
    Json(shared.targets.all().iter().map(numbers::metrics).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    limit: Option<usize>,
}

async fn get_top(State(shared): State<Handle>, uri: Uri) -> Result<Json<Value>, Problem> {
    let usage = "the query has to be `limit=` and a number from 1 to 1000, or nothing";
    let Limit { limit } = query(&uri, usage)?;
    let limit = limit.unwrap_or(USUAL_TOP);
    if !(1..=MOST_TOP).contains(&limit) {
        return Err(Problem::from(Code::Malformed).detail(usage));
    }
    let top = numbers::top(&shared.targets.all(), limit);
    Ok(Json(top.iter().map(numbers::top_json).collect()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    #[serde(default)]
    since: u64,
}

async fn get_denials(State(shared): State<Handle>, uri: Uri) -> Result<Json<Value>, Problem> {
    let Since { since } = query(&uri, Since::USAGE)?;
    let denials = numbers::denials(&shared.targets.all(), since);
    Ok(Json(denials.iter().map(numbers::denial_json).collect()))
}

async fn get_samples(State(shared): State<Handle>, uri: Uri) -> Result<Response, Problem> {
    let Since { since } = query(&uri, Since::USAGE)?;
    shared.sampler.look();
    let samples = shared.sampler.samples_after(since);
    Ok(([(CONTENT_TYPE, "application/json")], samples).into_response())
}

impl Since {
    const USAGE: &str = "the query has to be `since=` and a time in milliseconds, or nothing";
}

fn query<T: DeserializeOwned>(uri: &Uri, usage: &'static str) -> Result<T, Problem> {
    let query = Query::try_from_uri(uri);
    let query = query.map_err(|_| Problem::from(Code::Malformed).detail(usage));
    query.map(|Query(query)| query)
}

async fn post_look_up(State(shared): State<Handle>, body: Bytes) -> Result<Json<Value>, Problem> {
    let question = request::read(&body, OF_CALLER)?;
    let found = question.look_up(&shared).await?;
    Ok(Json(look_up::json(&found)))
}

/// Returns the route of a change.
fn change(action: Action) -> MethodRouter<Handle> {
    let make = async move |State(shared): State<Handle>,
                           Extension(who): Extension<Who>,
                           body: Bytes|
                -> Result<Json<Value>, Problem> {
        let body = request::read(&body, action.row().1)?;
        let change = Change {
            action,
            body,
            shared,
            who,
        };
        // It is logged also if the client hangs up.
        let made = tokio::spawn(change.make().in_current_span()).await;
        made.map_err(|_| Code::Panicked)?.map(Json)
    };
    post(make)
}

/// Returns whole milliseconds, rounded up.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns the milliseconds since the UNIX epoch.
pub(crate) fn epoch_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
