//! The front page of the demo.

use serde_json::json;

use crate::{
    browser::Tab,
    process::{Demo, new_caller},
    support::RedisServer,
};

pub(crate) const ROUTES: [&str; 13] = [
    "GET /api/token-bucket",
    "GET /api/fixed-window",
    "GET /api/stacked",
    "POST /api/weighted",
    "GET /api/leaky-bucket",
    "GET /api/paced",
    "GET /api/sliding-window",
    "GET /api/sliding-log",
    "POST /api/login",
    "POST /api/tokens",
    "GET /api/penalty",
    "GET /health",
    "GET /api/concurrency",
];

/// Finds a card by its heading, and a text of it that the user sees without scrolling.
const HELPERS: &str = r#"
const card = (route) => [...document.querySelectorAll(".routes > li")]
  .find((item) => item.querySelector(".head code").textContent === route);
const sendButton = (route) => card(route).querySelector("button.send");
const isOnScreen = (route, text) => {
  const walker = document.createTreeWalker(card(route), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    if (!walker.currentNode.data.includes(text)) continue;
    range.selectNode(walker.currentNode);
    const { width, height, top, right, bottom, left } = range.getBoundingClientRect();
    if (width * height > 0 && top >= 0 && left >= 0 && right <= innerWidth && bottom <= innerHeight) return true;
  }
  return false;
};
const setInput = (id, value) => {
  const input = document.getElementById(id);
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
};
"#;

pub(crate) fn open(demo: &Demo, tab: &mut Tab) {
    tab.navigate(&format!("http://{}/", demo.address));
    tab.evaluate(HELPERS);
}

/// Asserts that nothing went wrong but the requests that were denied.
#[track_caller]
pub(crate) fn assert_no_problems(tab: &mut Tab) {
    let problems = tab.problems().iter();
    let others = problems.filter(|problem| {
        !["401", "403", "404", "429"]
            .iter()
            .any(|status| problem.contains(&format!("responded with a status of {status} ")))
    });
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
}

pub(crate) fn press_send(tab: &Tab, route: &str) {
    tab.click(&scroll_to_send(tab, route));
}

/// A click misses a button that the response of another card has just moved.
fn press_until_sent(tab: &Tab, route: &str, button: &str) {
    let is_sent = format!(
        "{button}.getAttribute('aria-disabled') !== null || card({}).innerText.includes('200 OK')",
        json!(route)
    );
    loop {
        tab.click(button);
        if tab.evaluate(&is_sent) == true {
            return;
        }
    }
}

/// Scrolls as a user who scrolls just far enough to press the button.
fn scroll_to_send(tab: &Tab, route: &str) -> String {
    let button = format!("sendButton({})", json!(route));
    tab.evaluate(&format!("{button}.scrollIntoView({{ block: 'nearest' }})"));
    button
}

fn wait_until_on_screen(tab: &Tab, route: &str, text: &str) {
    tab.wait_until(&format!("isOnScreen({}, {})", json!(route), json!(text)));
}

#[test]
fn each_pressed_card_shows_its_response_on_a_wide_and_on_a_narrow_screen() {
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    for (width, height) in [(1280, 800), (380, 700)] {
        tab.resize(width, height);
        open(&demo, &mut tab);
        // Its response takes five seconds.
        const SLOW: &str = "GET /api/concurrency";
        press_send(&tab, SLOW);
        for route in ROUTES {
            let button = scroll_to_send(&tab, route);
            if route != SLOW {
                press_until_sent(&tab, route, &button);
            }
            wait_until_on_screen(&tab, route, "200 OK");
            // A penalty grants nothing that a field could show.
            if !["GET /health", "GET /api/penalty"].contains(&route) {
                wait_until_on_screen(&tab, route, "ratelimit-policy");
                wait_until_on_screen(&tab, route, "x-decided-by");
            }
        }
        assert!(tab.overflow() <= 0, "wider by {}", tab.overflow());
    }
    assert_no_problems(&mut tab);
}

#[test]
fn a_denial_shows_its_wait_and_headers_in_the_card() {
    const ROUTE: &str = "GET /api/stacked";
    let demo = Demo::start(&[]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open(&demo, &mut tab);
    tab.evaluate(&format!("setInput('api-key', {})", json!(new_caller())));
    // The last one is shown, and may be allowed where requests are as slow as the bucket refills.
    tab.evaluate("setInput('requests', 30)");
    loop {
        press_send(&tab, ROUTE);
        tab.wait_until("sendButton('GET /api/stacked').getAttribute('aria-disabled') === null");
        if tab.evaluate("isOnScreen('GET /api/stacked', 'retry-after')") == true {
            break;
        }
    }
    for text in [
        "429 Too Many Requests",
        "retry-after",
        "ratelimit-policy",
        "Wait ",
    ] {
        wait_until_on_screen(&tab, ROUTE, text);
    }
    let seconds = tab.evaluate(
        "[...card('GET /api/stacked').querySelectorAll('dl div')]
           .find((field) => field.firstChild.textContent === 'retry-after').lastChild.textContent",
    );
    let seconds: u64 = seconds.as_str().and_then(|s| s.parse().ok()).expect("it");
    assert!((1..=60).contains(&seconds), "{seconds}");
    wait_until_on_screen(&tab, ROUTE, &format!("Wait {seconds} s"));
    // The limit headers come first, and the rest is a click away.
    assert_eq!(
        tab.evaluate("isOnScreen('GET /api/stacked', 'content-length')"),
        false
    );
    tab.click("card('GET /api/stacked').querySelector('summary')");
    tab.wait_until("card('GET /api/stacked').innerText.includes('violated-policies')");

    // Each response has a mark of its own, which shows it again.
    assert_eq!(
        tab.evaluate("card('GET /api/stacked').querySelector('.marks').children.length"),
        24
    );
    assert_no_problems(&mut tab);
}

#[test]
fn each_control_is_reached_by_tab_and_shows_its_focus() {
    let redis = RedisServer::start();
    let demo = Demo::start(&["--redis", &redis.url()]);
    let Some(mut tab) = Tab::open() else {
        return;
    };
    open(&demo, &mut tab);
    // The first look shows the links of the cards.
    tab.wait_until("document.querySelectorAll('.more a:not([hidden])').length === 12");
    let (count, faults) = tab.walk_focus();
    assert_eq!(faults, [""; 0]);
    // Two buttons and a command for each card, and the settings.
    assert!(count > 3 * ROUTES.len() + 12, "{count}");
    assert_no_problems(&mut tab);
}
