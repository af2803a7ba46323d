//! The admin page, as its users see it.

use serde_json::json;

pub(crate) use crate::browser::WIDE;
use crate::{
    app::{App, Options},
    browser::Tab,
};

pub(crate) const NARROW: (u32, u32) = (390, 800);

/// Starts an application, and opens its admin page until it is live. `None` without a browser.
pub(crate) fn open(options: Options) -> Option<(App, Tab)> {
    let mut tab = Tab::open()?;
    let app = App::start(options);
    tab.navigate(&app.admin());
    wait_until_live(&tab);
    Some((app, tab))
}

#[track_caller]
pub(crate) fn wait_until_live(tab: &Tab) {
    tab.wait_until("document.getElementById('live')?.textContent === 'live'");
}

pub(crate) fn css(selector: &str) -> String {
    format!("document.querySelector({})", json!(selector))
}

/// Finds a visible button by its name, below an element.
pub(crate) fn button(within: &str, name: &str) -> String {
    format!(
        "[...({within}).querySelectorAll('button')].find((button) => button.checkVisibility()
           && (button.ariaLabel ?? button.textContent).trim() === {})",
        json!(name)
    )
}

/// Returns a text of others as the page shows it: no character turns the direction of others, and
/// a long text is cut.
pub(crate) fn shown(text: &str) -> String {
    let turns = |letter: char| matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown: String = text.replace(turns, "\u{fffd}");
    shown.chars().take(59).collect()
}

/// Finds what the look-up shows of a policy.
pub(crate) fn card(policy: &str) -> String {
    format!(
        "[...document.querySelectorAll('#result article')].find((card) =>
           card.querySelector('h4 bdi').textContent === {})",
        json!(policy)
    )
}

/// Looks a caller up, by the form.
#[track_caller]
pub(crate) fn look_up(tab: &Tab, caller: &str) {
    tab.fill(&css("#caller"), caller);
    tab.click(&css("#ask button[type=submit]"));
    let title = "document.getElementById('answer-title')?.textContent ?? ''";
    tab.wait_until(&format!("({title}).startsWith({})", json!(shown(caller))));
}

/// Makes a change of the caller that is shown, by the dialog.
#[track_caller]
pub(crate) fn change(tab: &Tab, policy: &str, name: &str, fields: &str) {
    tab.click(&button(&card(policy), &format!("{name}… {policy}")));
    submit(tab, fields);
    let outcome = "document.querySelector('#result-outcome .outcome')?.innerText ?? ''";
    tab.wait_until(&format!("({outcome}).includes('{name}: done')"));
}

/// Fills in the fields of the dialog that is open, `name=value|..`, and sends it.
#[track_caller]
pub(crate) fn submit(tab: &Tab, fields: &str) {
    tab.wait_until("document.querySelector('dialog[open]') !== null");
    for (name, value) in fields.split('|').filter_map(|field| field.split_once('=')) {
        tab.fill(&css(&format!("dialog input[name={name}]")), value);
    }
    tab.click(&css("dialog button[type=submit]"));
    tab.wait_until("document.querySelector('dialog[open]') === null");
}

/// Returns all visible text of an element.
#[track_caller]
pub(crate) fn text(tab: &Tab, selector: &str) -> String {
    tab.text(&format!("{}.innerText", css(selector)))
}
