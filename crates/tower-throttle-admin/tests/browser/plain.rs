//! The page without JavaScript.

use serde_json::json;

use crate::{
    app::{App, Options},
    browser::Tab,
    page::{self, NARROW, WIDE, css},
};

#[test]
fn tables_and_the_look_up_work_without_scripts() {
    let Some(mut tab) = Tab::open() else { return };
    let app = App::start(Options::default());
    app.exhaust("ann");
    tab.disable_scripts();
    tab.navigate(&app.admin());
    for (selector, texts) in [
        ("#policies", &["burst", "day", "strict", "job"][..]),
        ("#denials", &["burst", "/items/{id}", "no room"][..]),
        ("#top", &["burst"][..]),
        ("#entries", &["Nothing"][..]),
    ] {
        let shown = page::text(&tab, selector);
        for text in texts {
            assert!(shown.contains(text), "{text} in {selector}: {shown}");
        }
    }
    // What needs scripts is not there.
    let buttons =
        "[...document.querySelectorAll('button')].filter((button) => button.checkVisibility())
        .filter((button) => !(button.ariaLabel ?? button.textContent).startsWith('Look up'))
        .map((button) => button.textContent.trim())";
    tab.assert_is(buttons, json!([]));
    tab.click(&css("#denials tbody button"));
    tab.wait_until("document.querySelector('#result')?.innerText.includes('0 of 5')");
    tab.navigate(&app.admin());
    tab.fill(&css("#caller"), "header:x-api-key=ann");
    tab.click(&css("#ask button[type=submit]"));
    tab.wait_until("document.querySelector('#result')?.innerText.includes('of 1,000')");
    let result = page::text(&tab, "#result");
    for text in ["0 of 5", "burst", "No room"] {
        assert!(result.contains(text), "{text} in {result}");
    }
    // A key is never in a URL.
    assert!(!tab.text("location.href").contains("ann"));
    for (width, height) in [WIDE, NARROW] {
        tab.resize(width, height);
        assert_eq!(tab.overflow(), 0, "at {width}");
    }
    tab.picture("admin-plain", (1440, 1_600));
    let (_, faults) = tab.walk_focus();
    assert_eq!(faults, [""; 0]);
    assert_eq!(tab.problems(), [""; 0]);
}
