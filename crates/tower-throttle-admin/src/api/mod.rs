//! The API: JSON below `/api/v1/`. `docs/admin-api.md` describes it.
//!
//! The page shows the same facts, from the same functions.

pub(super) mod body;
mod caller_change;
mod changed;
pub(super) mod look_up;
mod mode_change;
pub(super) mod numbers;
pub(super) mod policies;
pub(super) mod recent;
mod sample;
pub(super) mod sampler;
pub(super) mod status;
pub(super) mod stores;
mod stream;

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Extension, Router,
    body::Body,
    extract::{RawQuery, State},
    response::Response,
    routing::{MethodRouter, get, post},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use serde::Serialize;
use tracing::Instrument;

use self::{
    caller_change::CallerChange, changed::Changed, look_up::Question, mode_change::ModeChange,
};
use super::{
    Who,
    problem::{Code, Problem},
    shared::Handle,
};

/// How many callers `top` lists by default, and at most.
const TOP: (usize, usize) = (20, 1_000);

/// Returns all routes below `/api/v1/`.
pub(super) fn routes() -> Router<Handle> {
    Router::new()
        .route("/api/v1/status", get(get_status))
        .route("/api/v1/policies", get(get_policies))
        .route("/api/v1/entries", get(get_entries))
        .route("/api/v1/metrics", get(get_metrics))
        .route("/api/v1/top", get(get_top))
        .route("/api/v1/denials", get(get_denials))
        .route("/api/v1/stream", get(get_stream))
        .route("/api/v1/lookup", post(look_up))
        .route("/api/v1/reset", of_caller(CallerChange::reset))
        .route("/api/v1/ban", of_caller(CallerChange::ban))
        .route("/api/v1/unban", of_caller(CallerChange::unban))
        .route("/api/v1/override", of_caller(CallerChange::set_quota))
        .route(
            "/api/v1/clear-override",
            of_caller(CallerChange::clear_quota),
        )
        .route("/api/v1/mode", of_mode(ModeChange::set))
        .route("/api/v1/clear-mode", of_mode(ModeChange::clear))
}

type Answered = Result<Response, Problem>;

async fn get_status(State(shared): State<Handle>, Extension(who): Extension<Who>) -> Answered {
    Ok(json(&status::status(&shared, &shared.targets.all(), &who)))
}

async fn get_policies(State(shared): State<Handle>) -> Answered {
    let (inspected, control) = (shared.targets.all(), shared.control.as_ref());
    Ok(json(&policies::policies(&inspected, control, None)))
}

async fn get_entries(State(shared): State<Handle>) -> Answered {
    Ok(json(&policies::entries(shared.control.as_ref())))
}

async fn get_metrics(State(shared): State<Handle>) -> Answered {
    Ok(json(&numbers::metrics(&shared.targets.all())))
}

async fn get_top(State(shared): State<Handle>, RawQuery(query): RawQuery) -> Answered {
    let (usual, most) = TOP;
    let limit = number_in(query.as_deref(), "limit")?.unwrap_or(usual as u64);
    let limit = usize::try_from(limit).ok();
    let limit = limit.filter(|limit| (1..=most).contains(limit));
    let limit = limit.ok_or_else(|| {
        Problem::new(Code::Malformed).detail(format!("`limit` has to be from 1 to {most}"))
    })?;
    Ok(json(&numbers::top(&shared.targets.all(), limit)))
}

async fn get_denials(State(shared): State<Handle>, RawQuery(query): RawQuery) -> Answered {
    let since_ms = number_in(query.as_deref(), "since")?.unwrap_or(0);
    Ok(json(&numbers::denials(&shared.targets.all(), since_ms)))
}

async fn get_stream(State(shared): State<Handle>, headers: HeaderMap) -> Answered {
    stream::stream(&shared.sampler, &headers)
}

async fn look_up(State(shared): State<Handle>, body: Bytes) -> Answered {
    let question = Question::read(&body)?;
    Ok(json(&question.look_up(&shared).await?))
}

fn of_caller(read: Read<CallerChange>) -> MethodRouter<Handle> {
    change(read, CallerChange::make)
}

fn of_mode(read: Read<ModeChange>) -> MethodRouter<Handle> {
    change(read, ModeChange::make)
}

/// Reads the body of a call.
type Read<T> = fn(&[u8]) -> Result<T, Problem>;

/// Returns the route of a change: what it reads, and how that is made.
fn change<C, S, F>(read: Read<C>, make: fn(C, Handle, Who) -> F) -> MethodRouter<Handle>
where
    C: 'static,
    S: Serialize + Send + 'static,
    F: Future<Output = Result<Changed<S>, Problem>> + Send + 'static,
{
    post(
        async move |State(shared): State<Handle>, Extension(who): Extension<Who>, body: Bytes| {
            // It is logged also if the client hangs up.
            let made = tokio::spawn(make(read(&body)?, shared, who).in_current_span());
            match made.await {
                Ok(made) => Answered::Ok(json(&made?)),
                Err(_) => Err(Problem::new(Code::Panicked)),
            }
        },
    )
}

fn json(value: &impl Serialize) -> Response {
    // Values of this API are texts and numbers, which all have a form in JSON.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Reads the only parameter that a query may have.
fn number_in(query: Option<&str>, name: &str) -> Result<Option<u64>, Problem> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(None);
    };
    let value = query
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('='));
    let is_number = |value: &&str| value.bytes().all(|digit| digit.is_ascii_digit());
    let number = value.filter(is_number).and_then(|value| value.parse().ok());
    let number: Option<u64> = number;
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(Problem::new(Code::Malformed).detail(format!(
            "the query has to be `{name}=` and a whole number, or nothing"
        ))),
    }
}

/// Returns whole milliseconds, rounded up.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns the milliseconds since the UNIX epoch.
pub(crate) fn epoch_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Numbers with names.
type Counts<T = u64> = BTreeMap<&'static str, T>;

fn counts(all: impl Iterator<Item = (&'static str, u64)>) -> Counts {
    all.collect()
}
