//! [`View`]: what the page shows, and its markup.

use super::{
    answer, assets, callers,
    html::{Html, fill},
    tables, tiles,
};
use crate::{
    api::{
        look_up::LookUp,
        numbers::{Denial, Metrics, Top},
        policies::{ControlEntry, Policy},
        status::Status,
    },
    base::Base,
};

/// What the page shows.
pub(super) struct View {
    pub(super) status: Status,
    pub(super) policies: Vec<Policy>,
    pub(super) entries: Vec<ControlEntry>,
    pub(super) metrics: Vec<Metrics>,
    pub(super) top: Vec<Top>,
    pub(super) denials: Vec<Denial>,
    /// Whether all users of the machine have access.
    pub(super) is_for_all_users: bool,
    /// Whether there is a session that can be ended.
    pub(super) has_session: bool,
    /// The look-up of a browser without scripts.
    pub(super) asked: Option<Asked>,
}

pub(super) struct Asked {
    /// As it was typed.
    pub(super) caller: String,
    pub(super) answer: Result<LookUp, String>,
}

const FOR_ALL_USERS: &str = "open to all users of this machine";

impl View {
    pub(super) fn render(&self, base: &Base) -> String {
        fill(&assets::PAGE, |name| self.content(name, base))
    }

    fn content(&self, placeholder: &str, base: &Base) -> Html {
        let html = Html::new();
        let (status, now_ms) = (&self.status, self.status.now_ms);
        match placeholder {
            "base" => html.text(&base.0),
            "changes" => html.text(if status.changes { "true" } else { "false" }),
            "version" => html.text(status.version),
            "badges" => self.badges(),
            "sign_out" if self.has_session => html
                .markup("<form method=\"post\" action=\"")
                .text(&base.0)
                .markup(
                    "session-end\"><button class=\"small\" type=\"submit\">Log out</button></form>",
                ),
            "store_tile" => tiles::store(status, &self.metrics),
            "traffic_tile" => tiles::traffic(&self.metrics),
            "file_tile" => tiles::file(status),
            "document_tile" => tiles::document(status),
            "policy_options" => tables::policy_options(&self.policies),
            "policies" => tables::policies(&self.policies, &self.metrics, now_ms),
            "sources" => tables::sources(&self.metrics),
            "stores" => tables::stores(&status.stores),
            "denials" => callers::denials(&self.denials, now_ms),
            "top" => callers::top(&self.top, now_ms),
            "entries" => callers::entries(&self.entries, now_ms),
            "entries_note" => html.text(&callers::entries_note(self.entries.len())),
            // The script adds a button to each row.
            "entries_action" if status.changes => {
                html.markup("<th scope=\"col\"><span class=\"hidden\">Remove</span></th>")
            }
            "look_up_problem" => {
                let problem = self
                    .asked
                    .as_ref()
                    .and_then(|asked| asked.answer.as_ref().err());
                html.maybe(problem, |html, problem| html.text(problem))
            }
            "look_up" => html.maybe(self.asked.as_ref(), |html, asked| {
                html.maybe(asked.answer.as_ref().ok(), |_, found| {
                    answer::answer(&asked.caller, found, now_ms)
                })
            }),
            _ => html,
        }
    }

    fn badges(&self) -> Html {
        let html = Html::new();
        let (who, changes) = (&self.status.who, self.status.changes);
        // The name that a change is signed with says nothing to a reader who cannot change anything.
        let html = match (self.is_for_all_users, changes) {
            (true, false) => html.markup(FOR_ALL_USERS),
            (true, true) => html.markup(FOR_ALL_USERS).markup(", as ").foreign(who),
            (false, _) => html.markup("as ").foreign(who),
        };
        match changes {
            true => html.markup(" <span class=\"badge warn\">changes allowed</span>"),
            false => html.markup(" <span class=\"badge\">read-only</span>"),
        }
    }
}

/// Returns the page that asks for the token. `message`: why it asks again.
pub(crate) fn login_page(base: &Base, message: &str) -> String {
    fill(&assets::LOGIN, |name| match name {
        "base" => Html::new().text(&base.0),
        "message" => Html::new().text(message),
        _ => Html::new(),
    })
}
