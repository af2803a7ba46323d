//! An operator finds out why a caller is denied, and helps it.

use serde_json::json;

use crate::{
    app::Options,
    browser::Tab,
    page::{self, button, card, change, look_up, submit},
};

#[track_caller]
fn wait_for_verdict(tab: &Tab, policy: &str, verdict: &str) {
    tab.wait_until(&format!(
        "({})?.querySelector('.badge').textContent.includes({})",
        card(policy),
        json!(verdict)
    ));
}

#[test]
fn a_caller_that_is_denied_is_reset_and_given_another_limit_until_it_is_removed() {
    let Some((app, mut tab)) = page::open(Options::with_redis()) else {
        return;
    };
    app.exhaust("ann");
    tab.wait_until("document.querySelector('#denials tbody button') !== null");
    tab.click("document.querySelector('#denials tbody button')");
    wait_for_verdict(&tab, "burst", "No room");
    change(&tab, "burst", "Reset", "");
    wait_for_verdict(&tab, "burst", "Has room");
    assert_eq!(app.ask("ann"), 200);

    app.exhaust("ann");
    look_up(&tab, "ann");
    let fields = "quota=1 per hour, burst 50|for=15m|reason=migration";
    change(&tab, "burst", "Override", fields);
    wait_for_verdict(&tab, "burst", "Has room");
    let left = |text: &str| {
        let shown = format!("({}).innerText.includes('{text}')", card("burst"));
        tab.wait_until(&shown);
    };
    left("of 50 left");
    for _ in 0..40 {
        assert_eq!(app.ask("ann"), 200);
    }
    // From the list of what is in force.
    tab.wait_until("document.querySelector('#entries tbody').innerText.includes('migration')");
    tab.click("document.querySelector('#entries tbody td:last-child button')");
    submit(&tab, "");
    left("of 5 left");
    assert_eq!(app.ask("ann"), 429);
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
fn a_policy_in_shadow_mode_denies_nothing() {
    let Some((app, mut tab)) = page::open(Options::with_redis()) else {
        return;
    };
    app.exhaust("ann");
    let row = "[...document.querySelectorAll('#policies tbody tr')]
        .find((row) => row.querySelector('th bdi').textContent === 'burst')";
    for (mode, badge, status) in [
        ("shadow", "shadow", 200),
        ("off", "off", 200),
        ("default", "enforce", 429),
    ] {
        tab.click(&button(row, "Change the mode of burst"));
        tab.wait_until("document.querySelector('dialog[open]') !== null");
        tab.click(&format!(
            "document.querySelector('dialog input[value={mode}]')"
        ));
        submit(&tab, "reason=too strict");
        tab.wait_until(&format!(
            "({row}).querySelector('.badge').textContent.includes('{badge}')"
        ));
        assert_eq!(app.ask("ann"), status, "{mode}");
    }
    assert_eq!(tab.problems(), [""; 0]);
}
