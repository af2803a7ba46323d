//! What clients and operators choose is text on the page, whatever they choose.

use serde_json::json;

use crate::{
    app::Options,
    browser::Tab,
    page::{self, NARROW, WIDE, change, look_up, shown},
};

const POLICY: &str = r#""><img src=x onerror="hacked=1">"#;
const LIMITER: &str = "</script><script>hacked=1</script>";
const REASON: &str = "</td></table><iframe src=//x></iframe>&lt;b&gt; \u{202e}desrever\u{2066}";
const LABEL: &str = "<svg onload=hacked=1> \u{202e}\u{2067}${hacked=1}{{hacked=1}}";
const NAME: &str = "\u{202e}<a href=javascript:hacked=1>x";

/// Asserts that no element came of a text, that nothing ran, that the text of one direction
/// cannot reorder what is around it, and that the page is as wide as its window.
#[track_caller]
fn assert_intact(tab: &mut Tab) {
    tab.assert_is("globalThis.hacked ?? null", json!(null));
    let elements = "document.querySelectorAll('img, iframe, svg[onload], a[href^=javascript]')";
    tab.assert_is(&format!("{elements}.length"), 0);
    tab.assert_is("document.scripts.length", 1);
    let exposed = tab.evaluate(
        "(() => {
          const found = [];
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            if (!/[\\u202a-\\u202e\\u2066-\\u2069]/.test(walker.currentNode.data)) continue;
            const { localName } = walker.currentNode.parentNode;
            const { unicodeBidi } = getComputedStyle(walker.currentNode.parentNode);
            if (localName !== 'option' && !unicodeBidi.includes('isolate')) found.push(localName);
          }
          return found;
        })()",
    );
    assert_eq!(exposed, json!([]));
    for (width, height) in [WIDE, NARROW] {
        tab.resize(width, height);
        assert_eq!(tab.overflow(), 0, "at {width}");
    }
    tab.resize(WIDE.0, WIDE.1);
    assert_eq!(tab.problems(), [""; 0]);
}

#[track_caller]
fn wait_for_text(tab: &Tab, selector: &str, text: &str) {
    tab.wait_until(&format!(
        "{}?.textContent.includes({})",
        page::css(selector),
        json!(shown(text))
    ));
}

#[test]
fn hostile_names_keys_labels_and_reasons_are_text() {
    let key = format!("\"><img src=x onerror=hacked=1>{}", "k".repeat(2_000));
    let options = Options {
        policy: POLICY,
        limiter: LIMITER,
        ..Options::default()
    };
    let Some((app, mut tab)) = page::open(options) else {
        return;
    };
    app.exhaust_with(&[("x-api-key", &key), ("x-name", NAME)]);
    wait_for_text(&tab, "#policies", POLICY);
    wait_for_text(&tab, "#policies", LIMITER);
    wait_for_text(&tab, "#denials", POLICY);
    wait_for_text(&tab, "#top", NAME);
    assert_intact(&mut tab);

    // A caller that the operator pastes in, with controls of direction, of 4 KiB.
    let caller = format!("{LABEL}{}", "x".repeat(4_096 - LABEL.len()));
    look_up(&tab, &caller);
    assert_intact(&mut tab);
    let fields = format!("for=1h|reason={REASON}|label={LABEL}");
    change(&tab, POLICY, "Ban", &fields);
    wait_for_text(&tab, "#entries", REASON);
    wait_for_text(&tab, "#entries", LABEL);
    wait_for_text(&tab, "#result", REASON);
    assert_intact(&mut tab);

    // A problem that repeats what was typed.
    tab.fill(&page::css("#caller"), "header:<img src=x onerror=hacked=1>");
    tab.click(&page::css("#ask button[type=submit]"));
    tab.wait_until("document.getElementById('ask-problem').textContent !== ''");
    assert_intact(&mut tab);
}
