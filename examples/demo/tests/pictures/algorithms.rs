//! The live pictures of the demo's page, in a browser.

use std::process::Command;

use serde_json::json;

use crate::{
    browser::Tab,
    front_page::{assert_no_problems, open, press_send},
    process::{Demo, ask, change, new_caller},
};

const ROUTES: [&str; 12] = [
    "GET /api/token-bucket",
    "GET /api/leaky-bucket",
    "GET /api/paced",
    "GET /api/fixed-window",
    "GET /api/sliding-window",
    "GET /api/sliding-log",
    "GET /api/concurrency",
    "GET /api/stacked",
    "POST /api/weighted",
    "POST /api/login",
    "POST /api/tokens",
    "GET /api/penalty",
];

/// Counts frames and polls, and keeps all that a picture was between two polls. The requests that
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
let frames = 0;
const [fetched, framed] = [fetch, requestAnimationFrame];
window.fetch = async (path, ...others) => {
  const response = await fetched(path, ...others);
  if (path.startsWith("/api/remaining")) polls += 1;
  return response;
};
window.requestAnimationFrame = (draw) => { frames += 1; return framed(draw); };
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
    for route in ROUTES {
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
        tab.wait_until("mostBetweenPolls() > 3");
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
fn a_denied_request_shows_its_wait_in_the_picture() {
    let demo = Demo::slow(None);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open_with_helpers(&demo, &mut tab);
    tab.evaluate("setInput('requests', 6)");
    press_send(&tab, "GET /api/sliding-log");
    tab.wait_until("remarks.filter((text) => text === '').length === 5");
    tab.wait_until("remarks.some((text) => /^wait \\d+ min$/.test(text))");
    tab.wait_until(
        "picture('GET /api/sliding-log').getAttribute('aria-label')
           === 'Sliding log: 5 of 5 requests in the last 60 min.'",
    );
    tab.wait_until("picture('GET /api/sliding-log').querySelectorAll('.unit').length === 5");
    tab.wait_until("picture('GET /api/sliding-log').querySelector('.gate.shut') !== null");
    assert_no_problems(&mut tab);
}

#[test]
fn pictures_at_rest_ask_for_no_frames() {
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open_with_helpers(&demo, &mut tab);
    tab.wait_until("polls > 1");
    tab.evaluate("polls = frames = 0");
    tab.wait_until("polls > 3");
    // One for each poll, and one that was under way.
    tab.wait_until("frames <= polls + 1");
    // The tokens take ten seconds to come back.
    tab.evaluate("setInput('requests', 10)");
    press_send(&tab, "GET /api/token-bucket");
    tab.wait_until("frames > polls + 20");
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
    let command = |route: &str| {
        let expression = format!(
            "card({}).querySelector('.command pre').textContent",
            json!(route)
        );
        tab.evaluate(&expression).as_str().expect("it").to_owned()
    };
    let weighted = command("POST /api/weighted");
    let address = demo.address;
    assert_eq!(
        weighted,
        format!(
            "curl -i -X POST -H 'x-api-key: it'\\''s me' 'http://{address}/api/weighted?cost=3'"
        )
    );
    // As a shell reads it.
    let words = format!("printf '%s|' {weighted}");
    let words = Command::new("sh").args(["-c", &words]).output();
    let words = String::from_utf8(words.expect("a shell").stdout).expect("text");
    let expected =
        format!("curl|-i|-X|POST|-H|x-api-key: it's me|http://{address}/api/weighted?cost=3|");
    assert_eq!(words, expected);
    let get = command("GET /api/paced");
    assert!(
        get.ends_with(&format!("'http://{address}/api/paced'")),
        "{get}"
    );
    assert!(!get.contains("-X"), "{get}");
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

#[test]
fn a_card_links_to_the_visitor_on_the_admin_page() {
    let demo = Demo::slow(None);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open_with_helpers(&demo, &mut tab);
    let visitor = tab.evaluate("document.getElementById('api-key').value");
    let visitor = visitor.as_str().expect("a key").to_owned();
    let guess = "/api/login?password=guess";
    assert_eq!(demo.post(guess, &visitor).status, 401);
    let link = "card('POST /api/login').querySelector('.more a')";
    tab.wait_until(&format!("{link}.hash.includes({})", json!(visitor)));
    let link = tab.evaluate(&format!("{link}.href"));
    let link = link.as_str().expect("a link").to_owned();
    tab.navigate(&link);
    tab.wait_until("document.getElementById('result').textContent.includes('4 of 5')");
    // Without a key, the address is the caller.
    assert_eq!(ask(demo.address, "POST", guess, None).status, 401);
    tab.evaluate("location.hash = '#caller=ip:127.0.0.1&policy=wrong-passwords'");
    tab.wait_until(
        "document.getElementById('result').textContent.includes('4 of 5')
        && document.getElementById('result').textContent.includes('127.0.0.1')",
    );
    assert_no_problems(&mut tab);
}

#[test]
fn a_picture_shows_what_an_operator_decided() {
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open_with_helpers(&demo, &mut tab);
    let visitor = tab.text("document.getElementById('api-key').value");
    let state = |state: &str| {
        tab.wait_until(&format!(
            "picture('GET /api/stacked').getAttribute('aria-label').startsWith('Two policies: {state}')"
        ));
    };
    let caller = json!({ "caller": visitor, "policy": "minute" });
    state("5 of 5 left");
    let ban = json!({ "caller": visitor, "policy": "minute", "for": "1h" });
    change(&demo, "ban", &ban);
    state("banned: by an operator, for 60 min");
    change(&demo, "unban", &caller);
    state("5 of 5 left");
    for mode in ["off", "shadow"] {
        change(&demo, "mode", &json!({ "policy": "minute", "mode": mode }));
        state("not enforced: an operator changed the mode");
        change(&demo, "clear-mode", &json!({ "policy": "minute" }));
        state("5 of 5 left");
    }
    assert_no_problems(&mut tab);
}
