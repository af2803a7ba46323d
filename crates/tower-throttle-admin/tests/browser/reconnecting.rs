//! A stream of events ends every eight seconds. The page goes on as if it had not.

use std::time::Instant;

use serde_json::json;

use crate::{
    app::{App, Options},
    browser::Tab,
    client::read_samples,
    page::{self, WIDE},
};

/// Keeps each event of the stream, before the page gets it.
const RECORDER: &str = "
globalThis.heard = [];
globalThis.EventSource = class extends EventSource {
  constructor(...given) {
    super(...given);
    for (const kind of ['open', 'error', 'history', 'sample']) {
      this.addEventListener(kind, ({ data = '[]', lastEventId: id }) => heard.push({ kind, id, data: JSON.parse(data) }));
    }
  }
};
const all = (kind) => heard.filter((event) => event.kind === kind);
const numbers = () => all('sample').map(({ id }) => Number(id.split('-')[1]));
const isWithoutGaps = () => numbers().every((number, index, every) => index === 0 || number === every[index - 1] + 1);
const requests = () => all('sample').map(({ data: { limiters, over_ms } }) =>
  Math.round(limiters.reduce((sum, { allowed, denied }) => sum + allowed + denied, 0) * over_ms / 1000))
  .reduce((sum, count) => sum + count, 0);
const line = () => document.querySelector('#traffic-chart .plot path.line.allowed').getAttribute('d');
const times = () => [...all('history').flatMap(({ data }) => data), ...all('sample').map(({ data }) => data)].map(({ at_ms }) => at_ms);
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
    let mut tab = Tab::open(WIDE.0, WIDE.1)?;
    tab.call(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({ "source": RECORDER }),
    );
    let app = App::start(Options::default());
    tab.navigate(&app.admin());
    page::wait_until_live(&tab);
    Some((app, tab))
}

/// Asserts that the page has each sample once, that these have each request, and that the chart has
/// a point for each.
#[track_caller]
fn assert_nothing_is_lost(app: &App, tab: &Tab) {
    let asked = app.statuses("GET /items/1").len();
    tab.wait_until(&format!("requests() === {asked}"));
    assert_eq!(tab.evaluate("isWithoutGaps()"), true);
    assert_eq!(tab.evaluate("all('history').length"), 1);
    tab.wait_until("points() === all('history')[0].data.length + all('sample').length");
}

#[test]
fn a_stream_that_ends_as_planned_shows_nowhere_and_loses_nothing() {
    let started = Instant::now();
    let Some((app, mut tab)) = open() else {
        return;
    };
    app.exhaust("ann");
    for id in ["denials", "top"] {
        tab.wait_until(&format!(
            "document.querySelector('#{id} tbody code') !== null"
        ));
    }
    tab.evaluate(WATCHER);
    while tab.evaluate("all('open').length > 1") != true {
        let samples = tab.evaluate("all('sample').length");
        app.ask(&format!("caller {samples}"));
        tab.wait_until(&format!("all('sample').length > {samples}"));
    }
    let samples = tab.evaluate("all('sample').length");
    tab.wait_until(&format!("all('sample').length > {samples} + 1"));
    assert_eq!(tab.evaluate("flashes"), json!([]));
    assert_nothing_is_lost(&app, &tab);
    // For what the stream does not have, the page asks every five seconds.
    let seconds = started.elapsed().as_secs() as usize;
    let times = app.statuses("GET /admin/parts").len();
    assert!(times <= seconds / 5 + 4, "{times} times in {seconds} s");
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
fn a_page_that_connects_late_gets_what_it_missed() {
    let Some((app, mut tab)) = open() else {
        return;
    };
    app.hold_streams(true);
    tab.wait_until("all('error').length > 0");
    app.exhaust("ann");
    read_samples(app.address, 2);
    assert_eq!(tab.evaluate("all('open').length"), 1);
    app.hold_streams(false);
    tab.wait_until("document.querySelector('#denials tbody code') !== null");
    assert_nothing_is_lost(&app, &tab);
    assert_eq!(tab.problems(), [""; 0]);
}
