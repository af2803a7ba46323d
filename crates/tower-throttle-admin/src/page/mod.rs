//! The page and its assets.
//!
//! The server renders all facts, so that the page works without scripts. The script asks for the page
//! again and again, and swaps its parts: elements with `data-part`. It adds charts, and the dialogs of
//! changes.
//!
//! | attribute | meaning |
//! |---|---|
//! | `data-part` | an element that the script renews |
//! | `data-key` | names an element among its siblings, so that it stays while others come and go |
//! | `data-own` | the script fills the element |
//! | `data-still` | the element stays as it is while the pointer is on it |
//! | `data-change` | a button that opens the dialog of this change, about the nearest `data-policy` |
//!
//! Texts of others stay texts: `maud` escapes all that is not markup of this crate.

mod answer;
mod ask;
mod callers;
mod card;
mod changes;
mod entries;
mod layout;
mod tables;
mod text;
mod tiles;
mod words;

use std::time::Duration;

use axum::{
    Extension, Form, Router,
    extract::{State, rejection::FormRejection},
    response::Html,
    routing::{get, post},
};
use tower_throttle::{
    inspect::Inspect,
    metrics::{Snapshot, StoreMetrics},
};

use self::ask::Ask;
pub(super) use self::layout::login_page;
use super::{
    api::{
        look_up::CallerPolicy,
        policies::{self, Policy},
        recent::Totals,
        status::stores,
    },
    base::Base,
    problem::{Code, Problem},
    shared::Handle,
    who::Who,
};

/// Over how long what happened lately is summed up: in the tiles, and in the table of sources.
const LATELY: Duration = Duration::from_secs(10);
const RECENTLY: Duration = Duration::from_secs(300);

const STYLE: &str = concat!(
    include_str!("assets/colors.css"),
    include_str!("assets/admin.css")
);
/// One module of all parts: browsers ask for one file, and the parts need no imports.
const SCRIPT: &str = concat!(
    include_str!("assets/words.js"),
    include_str!("assets/chart.js"),
    include_str!("assets/changes.js"),
    include_str!("assets/page.js"),
);
const ICON: &str = include_str!("assets/admin.svg");

/// Returns the page, its assets, and the look-up.
pub(super) fn routes() -> Router<Handle> {
    let file = |kind: &'static str, text: &'static str| {
        get(async move || ([("content-type", kind)], text))
    };
    Router::new()
        .route("/", get(show))
        // The same for the script, at a path that is the same wherever the page is.
        .route("/parts", get(show))
        .route("/look-up", post(look_up))
        .route("/admin.css", file("text/css; charset=utf-8", STYLE))
        .route("/admin.js", file("text/javascript; charset=utf-8", SCRIPT))
        .route("/admin.svg", file("image/svg+xml", ICON))
}

/// What the page shows.
struct View {
    shared: Handle,
    inspected: Vec<Inspect>,
    /// The numbers of each layer and limiter, and those of their stores.
    snapshots: Vec<Snapshot>,
    stores: Vec<StoreMetrics>,
    who: Who,
    policies: Vec<Policy>,
    /// What was asked, and the answer to it.
    asked: Option<(Ask, Result<Vec<CallerPolicy>, String>)>,
}

pub(super) async fn show(
    State(shared): State<Handle>,
    Extension(base): Extension<Base>,
    who: Option<Extension<Who>>,
) -> Html<String> {
    match who {
        Some(Extension(who)) => View::new(shared, who).render(&base),
        // There is nothing wrong with the request, and browsers report a page of another status than
        // 200 as an error in their consoles.
        None => login_page(&base, ""),
    }
}

/// Looks a caller up by a form. A link would put its key into a URL, which browsers and proxies
/// keep.
async fn look_up(
    State(shared): State<Handle>,
    Extension(base): Extension<Base>,
    Extension(who): Extension<Who>,
    form: Result<Form<Ask>, FormRejection>,
) -> Result<Html<String>, Problem> {
    let Form(mut ask) = form.map_err(|_| Problem::from(Code::Malformed))?;
    let answer = async { ask.question()?.look_up(&shared).await }.await;
    let answer = answer.map_err(|problem: Problem| problem.detail.into_owned());
    let mut view = View::new(shared, who);
    view.asked = Some((ask, answer));
    Ok(view.render(&base))
}

impl View {
    fn new(shared: Handle, who: Who) -> Self {
        shared.look();
        let inspected = shared.targets.all();
        let snapshots: Vec<_> = inspected.iter().map(Inspect::metrics).collect();
        Self {
            stores: stores(&snapshots),
            snapshots,
            who,
            policies: policies::policies(&inspected, shared.control.as_ref()),
            shared,
            inspected,
            asked: None,
        }
    }

    /// Sums up what happened in this time before now, or since the process started if nobody has
    /// looked before.
    fn totals(&self, time: Duration) -> Totals {
        let recent = self.shared.totals(time);
        recent.unwrap_or_else(|| Totals::new(0.0, &self.snapshots, &self.stores))
    }

    /// Returns whether names of layers and limiters are needed to tell policies apart.
    fn has_several_limiters(&self) -> bool {
        let mut names = self.inspected.iter().map(Inspect::name);
        let first = names.next();
        names.any(|other| Some(other) != first)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
