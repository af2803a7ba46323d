//! The page asks for samples again and again, and shows each once.

use std::time::Instant;

use serde_json::json;

use crate::{
    app::{App, Options},
    browser::Tab,
    page::{self},
};

/// Keeps each answer with samples, before the page gets it.
const RECORDER: &str = "
globalThis.answers = [];
{
  const ask = globalThis.fetch;
  globalThis.fetch = async (...given) => {
    const response = await ask(...given);
    if (`${given[0]}`.includes('/samples')) answers.push(await response.clone().json());
    return response;
  };
}
const all = () => answers.flat();
const times = () => all().map(({ at_ms }) => at_ms);
const isInOrder = () => times().every((at, index, every) => index === 0 || at > every[index - 1]);
const requests = () => all().map(({ limiters, over_ms }) =>
  Math.round(limiters.reduce((sum, { allowed, denied }) => sum + allowed + denied, 0) * over_ms / 1000))
  .reduce((sum, count) => sum + count, 0);
const line = () => document.querySelector('#traffic-chart .plot path.line.allowed').getAttribute('d');
const gaps = () => times().filter((at, index, every) => index > 0 && at - every[index - 1] > 3500).length;
const points = () => line().match(/[ML]/g).length;";

/// Keeps what a reader would notice: another state of the page, rows that are made anew, and a line
/// that has a gap of its own or becomes shorter. The clock by which the page waits for samples stands
/// still, so that a slow machine is no such state.
const WATCHER: &str = "
globalThis.flashes = [];
performance.now = () => 0;
{
  const observe = (selector, options, look) =>
    new MutationObserver((changes) => look(changes)).observe(document.querySelector(selector), options);
  observe('#live', { childList: true }, () => flashes.push(document.querySelector('#live').textContent));
  for (const id of ['policies', 'denials', 'top', 'entries']) {
    observe(`#${id} tbody`, { childList: true }, () => flashes.push(`rows of ${id}`));
  }
  let most = 0;
  observe('#traffic-chart .plot path.line.allowed', { attributeFilter: ['d'] }, () => {
    if (line().split('M').length !== 2 + gaps() || points() < most) flashes.push(line());
    most = points();
  });
}";

fn open() -> Option<(App, Tab)> {
    let mut tab = Tab::open()?;
    tab.call(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({ "source": RECORDER }),
    );
    let app = App::start(Options::default());
    tab.navigate(&app.admin());
    page::wait_until_live(&tab);
    Some((app, tab))
}

#[test]
fn samples_show_without_a_flash_and_none_is_lost() {
    let started = Instant::now();
    let Some((app, mut tab)) = open() else { return };
    app.exhaust("ann");
    for id in ["denials", "top"] {
        tab.wait_until(&format!(
            "document.querySelector('#{id} tbody code') !== null"
        ));
    }
    tab.evaluate(WATCHER);
    for _ in 0..3 {
        let samples = tab.evaluate("all().length");
        app.ask(&format!("caller {samples}"));
        tab.wait_until(&format!("all().length > {samples}"));
    }
    // The page has each sample once, these have each request, and the chart has a point for each.
    let asked = app.statuses("GET /items/1").len();
    tab.wait_until(&format!("requests() === {asked}"));
    tab.assert_is("isInOrder()", true);
    tab.wait_until("points() === all().length");
    tab.assert_is("flashes", json!([]));
    // For what samples do not have, the page asks every five seconds.
    let seconds = started.elapsed().as_secs() as usize;
    let times = app.statuses("GET /admin/parts").len();
    assert!(times <= seconds / 5 + 4, "{times} times in {seconds} s");
    assert_eq!(tab.problems(), [""; 0]);
}
