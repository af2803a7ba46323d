//! The live pictures of the demo's page, in a browser.

use std::process::Command;

use serde_json::json;

use crate::{
    browser::Tab,
    front_page::{ROUTES, assert_no_problems, open, press_send},
    process::{Demo, new_caller},
};

/// Counts polls, and keeps all that a picture was between two polls. The requests that
/// fall in are left out.
const HELPERS: &str = r#"
const picture = (route) => card(route).querySelector("svg.picture");
const still = (route) => {
  const copy = picture(route).cloneNode(true);
  copy.removeAttribute("aria-label");
  for (const drop of copy.querySelectorAll(".drop")) drop.remove();
  return copy.outerHTML;
};
let polls = 0;
const [fetched, framed] = [fetch, requestAnimationFrame];
window.fetch = async (path, ...others) => {
  const response = await fetched(path, ...others);
  if (path.startsWith("/api/remaining")) polls += 1;
  return response;
};
let seen = new Map();
const watch = (route) => {
  const mine = seen = new Map();
  const look = () => {
    if (mine !== seen) return;
    const pictures = seen.get(polls) ?? new Set();
    seen.set(polls, pictures.add(still(route)));
    framed(look);
  };
  look();
};
const mostBetweenPolls = () => Math.max(...[...seen.values()].map((pictures) => pictures.size));
const remarks = [];
new MutationObserver((changes) => {
  for (const { addedNodes } of changes) {
    for (const node of addedNodes) if (node.matches?.(".drop")) remarks.push(node.textContent);
  }
}).observe(document.getElementById("routes"), { childList: true, subtree: true });
"#;

fn open_with_helpers(demo: &Demo, tab: &mut Tab) {
    open(demo, tab);
    tab.evaluate(HELPERS);
    tab.evaluate(&format!("setInput('api-key', {})", json!(new_caller())));
    // Wrong passwords and missing pages are what is charged.
    tab.evaluate("setInput('password', 'guess'); setInput('page', 'missing')");
}

#[test]
fn each_picture_changes_with_a_request_and_moves_by_itself() {
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open_with_helpers(&demo, &mut tab);
    for route in ROUTES.into_iter().filter(|route| *route != "GET /health") {
        let quoted = json!(route);
        tab.evaluate(&format!(
            "picture({quoted}).scrollIntoView({{ block: 'center' }})"
        ));
        let before = tab.evaluate(&format!("picture({quoted}).getAttribute('aria-label')"));
        let before = before.as_str().expect("a text alternative").to_owned();
        tab.evaluate(&format!("watch({quoted})"));
        press_send(&tab, route);
        // Some move for half a second only, which a slow machine may miss.
        tab.evaluate(&format!(
            "globalThis.again = setInterval(() => sendButton({quoted}).click(), 300)"
        ));
        // A queue of one is never seen to wait.
        if route != "GET /api/paced" {
            tab.wait_until(&format!(
                "picture({quoted}).getAttribute('aria-label') !== {}",
                json!(before)
            ));
        }
        tab.wait_until("mostBetweenPolls() > 1");
        tab.evaluate("clearInterval(again)");
    }
    tab.picture("demo-wide", (1440, 1_500));
    tab.picture("demo-whole", (1440, 3_600));
    tab.prefer("dark");
    tab.picture("demo-dark", (1440, 3_600));
    tab.picture("demo-narrow", (390, 8_000));
    assert_no_problems(&mut tab);
}

#[test]
fn pictures_jump_where_the_user_wants_no_motion() {
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    let media = json!({ "name": "prefers-reduced-motion", "value": "reduce" });
    tab.call(
        "Emulation.setEmulatedMedia",
        &json!({ "features": [media] }),
    );
    open_with_helpers(&demo, &mut tab);
    tab.evaluate("watch('GET /api/token-bucket'); setInput('requests', 8)");
    press_send(&tab, "GET /api/token-bucket");
    tab.wait_until("polls > 5 && new Set([...seen.values()].flatMap((one) => [...one])).size > 3");
    // The one before the poll, and the one after it.
    let most = tab.evaluate("mostBetweenPolls()");
    assert!(most.as_u64() <= Some(2), "{most}");
    assert_no_problems(&mut tab);
}

#[test]
fn a_card_has_the_command_that_sends_the_same_request() {
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open_with_helpers(&demo, &mut tab);
    tab.evaluate("setInput('api-key', \"it's me\"); setInput('cost', 3)");
    let weighted = "card('POST /api/weighted').querySelector('.command pre').textContent";
    // As a shell reads it.
    let words = format!("printf '%s|' {}", tab.text(weighted));
    let words = Command::new("sh").args(["-c", &words]).output();
    let words = String::from_utf8(words.expect("a shell").stdout).expect("text");
    let address = demo.address;
    let expected =
        format!("curl|-i|-X|POST|-H|x-api-key: it's me|http://{address}/api/weighted?cost=3|");
    assert_eq!(words, expected);
}

#[test]
fn the_switch_of_the_page_starts_and_stops_traffic_on_the_pictures() {
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open_with_helpers(&demo, &mut tab);
    tab.evaluate("document.getElementById('as-me').click()");
    tab.click("document.getElementById('traffic-attack')");
    tab.wait_until(
        "document.getElementById('traffic-note').textContent.startsWith('One caller floods')",
    );
    tab.wait_until("remarks.some((text) => text.startsWith('wait '))");
    tab.click("document.getElementById('traffic-off')");
    tab.wait_until(
        "document.getElementById('traffic-note').textContent.startsWith('No requests but yours')",
    );
    assert_eq!(
        tab.evaluate("document.getElementById('outage').hidden"),
        true
    );
    assert_no_problems(&mut tab);
}
