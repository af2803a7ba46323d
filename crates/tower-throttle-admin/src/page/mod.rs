//! The page and its assets.
//!
//! The server renders all facts as tables, so that the page works without scripts. The script then
//! keeps them up to date, and adds charts and changes. Both show what the API says: the tables are
//! made of the values of `api`, and the script asks for the same as JSON.
//!
//! Texts of others stay texts. Here, only [`Html`](html::Html) makes markup, and it escapes them. In
//! the script, all of them are text nodes or values of attributes that hold text.

mod answer;
mod assets;
mod callers;
mod html;
mod render;
mod tables;
mod tiles;
mod words;

use axum::{
    Extension, Router,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::header::CONTENT_TYPE;

use self::render::{Asked, View};
use super::{
    api::{
        body::caller as read_caller,
        look_up::{LookUp, Question},
        numbers, policies, status,
    },
    base::Base,
    form,
    problem::Problem,
    shared::{Handle, Shared},
    who::Who,
};

pub(super) use self::render::login_page;

/// How many callers that are denied most are shown.
const MOST_OFFENDERS: usize = 20;
/// How many denials are shown.
const MOST_DENIALS: usize = 50;

/// Returns the page, its assets, and the look-up of browsers without scripts.
pub(super) fn routes() -> Router<Handle> {
    let routes = Router::new()
        .route("/", get(show))
        .route("/look-up", post(look_up));
    let add = |routes: Router<Handle>, (path, kind, text)| {
        routes.route(path, get(async move || ([(CONTENT_TYPE, kind)], text)))
    };
    assets::all().into_iter().fold(routes, add)
}

const HTML: [(http::HeaderName, &str); 1] = [(CONTENT_TYPE, "text/html; charset=utf-8")];

pub(super) async fn show(
    State(shared): State<Handle>,
    Extension(base): Extension<Base>,
    who: Option<Extension<Who>>,
) -> Response {
    match who {
        Some(Extension(who)) => page(&shared, &base, &who, None),
        // There is nothing wrong with the request, and browsers report a page of another status than
        // 200 as an error in their consoles.
        None => (HTML, login_page(&base, "")).into_response(),
    }
}

/// Looks a caller up by a form. A link would put its key into a URL, which browsers and proxies
/// keep.
async fn look_up(
    State(shared): State<Handle>,
    Extension(base): Extension<Base>,
    Extension(who): Extension<Who>,
    body: Bytes,
) -> Response {
    let field = |name| form::field(&body, name).unwrap_or_default();
    let (caller, policy) = (field("caller"), field("policy"));
    let answer = answer_to(&shared, &caller, &policy).await;
    let answer = answer.map_err(|problem| problem.message().to_owned());
    page(&shared, &base, &who, Some(Asked { caller, answer }))
}

async fn answer_to(shared: &Shared, caller: &str, policy: &str) -> Result<LookUp, Problem> {
    let question = Question {
        caller: read_caller(&parts_of(caller))?,
        policy: (!policy.is_empty()).then(|| policy.to_owned()),
        limiter: None,
        tier: None,
    };
    question.look_up(shared).await
}

/// How parts of a caller begin. The script has the same.
const PARTS: [&str; 8] = [
    "text:",
    "number:",
    "ip:",
    "fingerprint:",
    "header:",
    "cookie:",
    "bearer:",
    "method:",
];

/// Returns the parts of a caller, if all words are some. Otherwise it is one text, without the spaces
/// around it, which are pasted in by mistake.
fn parts_of(caller: &str) -> Vec<&str> {
    let words: Vec<&str> = caller.split_whitespace().collect();
    let is_part = |word: &&str| PARTS.iter().any(|part| word.starts_with(part));
    match words.len() > 1 && words.iter().all(is_part) {
        true => words,
        false => vec![caller.trim()],
    }
}

fn page(shared: &Shared, base: &Base, who: &Who, asked: Option<Asked>) -> Response {
    shared.sampler.look();
    let inspected = shared.targets.all();
    let mut denials = numbers::denials(&inspected, 0);
    denials.truncate(MOST_DENIALS);
    let view = View {
        status: status::status(shared, &inspected, who),
        policies: policies::policies(&inspected, shared.control.as_ref(), None),
        entries: policies::entries(shared.control.as_ref()),
        metrics: numbers::metrics(&inspected),
        top: numbers::top(&inspected, MOST_OFFENDERS),
        denials,
        is_for_all_users: shared.access.is_for_all_users(),
        has_session: shared.access.secret().is_some(),
        asked,
    };
    (HTML, view.render(base)).into_response()
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
