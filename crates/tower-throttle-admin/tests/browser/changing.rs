//! An operator finds out why a caller is denied, and helps it.

use serde_json::json;

use crate::{
    app::{App, Options},
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

fn shown(tab: &Tab, app: &App, caller: &str) -> Vec<(String, String)> {
    app.peek(caller)
        .into_iter()
        .map(|(policy, _, _)| {
            let left = tab.text(&format!(
                "({}).querySelector('.usage b').textContent",
                card(&policy)
            ));
            (policy, left)
        })
        .collect()
}

#[test]
fn a_look_up_shows_what_peek_returns() {
    let Some(mut tab) = Tab::open() else { return };
    for app in &[Options::default(), Options::with_redis()].map(App::start) {
        tab.navigate(&app.admin());
        page::wait_until_live(&tab);
        for (caller, requests) in [("new", 0), ("ann", 3), ("bob", 9)] {
            for _ in 0..requests {
                app.ask(caller);
            }
            look_up(&tab, &format!("header:x-api-key={caller}"));
            let peeked = app.peek(caller);
            assert_eq!(peeked.len(), 3);
            let with_comma = |number: u64| match number {
                1_000 => "1,000".to_owned(),
                _ => number.to_string(),
            };
            let expected: Vec<_> = peeked
                .into_iter()
                .map(|(policy, remaining, limit)| {
                    let [remaining, limit] = [remaining, limit].map(with_comma);
                    (policy, format!("{remaining} of {limit} left"))
                })
                .collect();
            assert_eq!(
                shown(&tab, app, caller),
                expected,
                "{caller}, redis: {}",
                app.redis.is_some()
            );
        }
        // One key for all limiters.
        let left = app.take_job("ann");
        look_up(&tab, "ann");
        let shown = tab.text(&format!(
            "({}).querySelector('.usage b').textContent",
            card("job")
        ));
        assert_eq!(shown, format!("{left} of 50 left"));
        assert_eq!(tab.problems(), [""; 0]);
    }
}

#[test]
fn a_click_on_a_denial_leads_to_a_reset_that_lets_the_next_request_in() {
    let Some((app, mut tab)) = page::open(Options::with_redis()) else {
        return;
    };
    app.exhaust("ann");
    tab.wait_until("document.querySelector('#denials tbody button') !== null");
    tab.click("document.querySelector('#denials tbody button')");
    wait_for_verdict(&tab, "burst", "No room");
    change(&tab, "burst", "Reset", &[]);
    wait_for_verdict(&tab, "burst", "Has room");
    assert_eq!(app.ask("ann"), 200);
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
fn a_ban_denies_a_caller_until_it_is_removed() {
    let Some((app, mut tab)) = page::open(Options::with_redis()) else {
        return;
    };
    assert_eq!(app.ask("ann"), 200);
    look_up(&tab, "ann");
    let fields = [
        ("for", "1h"),
        ("reason", "ticket 4711"),
        ("label", "Example Inc."),
    ];
    change(&tab, "burst", "Ban", &fields);
    wait_for_verdict(&tab, "burst", "Banned");
    assert_eq!(app.ask("ann"), 429);
    assert_eq!(app.ask("bob"), 200);
    tab.wait_until("document.querySelector('#entries tbody').innerText.includes('ticket 4711')");
    for part in ["Example Inc.", "loopback", "burst"] {
        assert!(page::text(&tab, "#entries tbody").contains(part), "{part}");
    }
    change(&tab, "burst", "Unban", &[]);
    wait_for_verdict(&tab, "burst", "Has room");
    assert_eq!(app.ask("ann"), 200);
    tab.wait_until(
        "document.querySelector('#entries tbody').innerText.includes('Nothing is changed')",
    );
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
fn an_override_gives_a_caller_another_limit_until_it_is_removed() {
    let Some((app, mut tab)) = page::open(Options::with_redis()) else {
        return;
    };
    app.exhaust("ann");
    look_up(&tab, "ann");
    let fields = [
        ("quota", "1 per hour, burst 50"),
        ("for", "15m"),
        ("reason", "migration"),
    ];
    change(&tab, "burst", "Override", &fields);
    wait_for_verdict(&tab, "burst", "Has room");
    tab.wait_until(&format!(
        "({}).innerText.includes('of 50 left')",
        card("burst")
    ));
    for _ in 0..40 {
        assert_eq!(app.ask("ann"), 200);
    }
    // From the list of what is in force.
    tab.wait_until("document.querySelector('#entries tbody').innerText.includes('migration')");
    tab.click("document.querySelector('#entries tbody td:last-child button')");
    submit(&tab, &[]);
    tab.wait_until(&format!(
        "({}).innerText.includes('of 5 left')",
        card("burst")
    ));
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
        submit(&tab, &[("reason", "too strict")]);
        tab.wait_until(&format!(
            "({row}).querySelector('.badge').textContent.includes('{badge}')"
        ));
        assert_eq!(app.ask("ann"), status, "{mode}");
    }
    assert_eq!(tab.problems(), [""; 0]);
}
