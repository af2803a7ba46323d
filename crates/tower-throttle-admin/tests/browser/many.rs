//! Pages of many layers, policies and entries, and what the script of the page does by itself.

use std::collections::BTreeSet;

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use serde_json::json;
use tokio::runtime::Runtime;
use tower_throttle::{control::Control, inspect::Inspectable};
use tower_throttle_admin::{Access, Admin};
use tower_throttle_config::Config;

use crate::support::prelude::*;
use crate::{
    app::{listen, serve_page},
    browser::Tab,
    page::{self, card, look_up, submit},
};

/// Opens an admin page about these at `/admin`, below routes that take calls in its place. It is
/// there while the runtime lives.
fn open<T: Inspectable + Clone, const N: usize>(
    targets: [&T; N],
    control: Option<&Control>,
    routes: Router,
) -> Option<(Runtime, Tab)> {
    let mut tab = Tab::open()?;
    let mut targets = targets.into_iter();
    let first = Admin::new(targets.next().expect("a target"));
    let mut admin = targets.fold(first, |admin, target| admin.target(target));
    if let Some(control) = control {
        admin = admin.control(control).allow_changes();
    }
    let admin = admin.access(Access::loopback_with_changes()).into_router();
    let runtime = Runtime::new().expect("a runtime");
    let address = listen(&runtime, 0, routes.nest_service("/admin", admin));
    tab.navigate(&format!("http://{address}/admin"));
    Some((runtime, tab))
}

fn deny(limiter: &Limiter, times: usize) {
    (0..times).for_each(|_| drop(limiter.check_now("ann").expect("a decision")));
}

/// Layers that are given no name have one name, and so have their policies.
#[test]
fn namesakes_are_shown_each_with_its_own_numbers() {
    let limiters = [2, 3].map(|most| Limiter::new(MemoryStore::new(), FixedWindow::per_day(most)));
    limiters.iter().for_each(|limiter| deny(limiter, 4));
    let targets = [&limiters[0], &limiters[1]];
    let Some((_runtime, mut tab)) = open(targets, None, Router::new()) else {
        return;
    };
    page::wait_until_live(&tab);
    let column = |index| {
        format!(
            "[...document.querySelectorAll('#policies tbody tr')]
               .map((row) => row.cells[{index}].firstChild.textContent)"
        )
    };
    // The script has counted them.
    let lines = "document.querySelectorAll('#policies tbody svg').length";
    tab.wait_until(&format!("{lines} === 2"));
    let expected = json!(["fixed window of 2 per day", "fixed window of 3 per day"]);
    tab.assert_is(&column(2), expected);
    tab.assert_is(&column(4), json!(["2", "3"]));
    tab.assert_is(&column(5), json!(["2", "1"]));
    look_up(&tab, "bob");
    let left = "[...document.querySelectorAll('#result .usage b')].map((one) => one.textContent)";
    tab.assert_is(left, json!(["2 of 2 left", "3 of 3 left"]));
    assert_eq!(tab.problems(), [""; 0]);
}

/// A new version of a file drops a policy while a caller is looked at.
#[test]
fn a_look_up_drops_policies_that_are_gone() {
    let config = |names: &[&str]| {
        let policies = names
            .iter()
            .map(|name| format!("[[policy]]\nname = {name:?}\nquota = \"5 per hour\"\n"));
        let text = format!("version = 1\n{}", policies.collect::<String>());
        Config::from_toml(&text).expect("a file")
    };
    let limits = config(&["stays", "goes"]).build().expect("limits");
    let Some((_runtime, mut tab)) = open([&limits], None, Router::new()) else {
        return;
    };
    look_up(&tab, "everyone:");
    tab.wait_until(&format!("({}) !== undefined", card("goes")));
    limits.replace(config(&["stays"])).expect("it is taken");
    tab.wait_until(&format!("({}) === undefined", card("goes")));
    tab.wait_until(&format!("({}) !== undefined", card("stays")));
    assert_eq!(tab.problems(), [""; 0]);
}

/// An entry may be of a policy that no layer has, and a policy of a layer that follows no document.
#[test]
fn what_has_no_effect_is_said_and_can_be_removed() {
    let control = Control::in_memory();
    let ban = control.ban("gone", "ann", Duration::from_secs(3_600));
    at_once(ban.into_future()).expect("made");
    let layer = RateLimitLayer::new(Policy::new("alone", TokenBucket::per_hour(5)).shared());
    let Some((_runtime, mut tab)) = open([&layer], Some(&control), Router::new()) else {
        return;
    };
    let remove = "document.querySelector('#entries tbody td:last-child button')";
    tab.wait_until(&format!("{remove} !== null"));
    let tile = page::text(&tab, "#tile-document");
    for part in ["No such policy here: gone", "Not followed under alone"] {
        assert!(tile.contains(part), "{tile}");
    }
    let policies = page::text(&tab, "#policies tbody");
    let is_said = policies.contains("does not follow the control document");
    assert!(is_said, "{policies}");
    let changes = "document.querySelectorAll('#policies tbody button').length";
    tab.assert_is(changes, 0);
    look_up(&tab, "everyone:");
    let buttons =
        "[...document.querySelectorAll('#result article button')].map((one) => one.textContent)";
    tab.assert_is(buttons, json!(["Reset…"]));

    tab.click(remove);
    submit(&tab, "");
    tab.wait_until("document.querySelector('#entries tbody').innerText.includes('Nothing')");
    assert!(control.entries().is_empty());
    assert_eq!(tab.problems(), [""; 0]);
}

/// Samples arrive, and another call fails.
#[test]
fn tables_that_are_not_up_to_date_are_said_to_be() {
    let layer = RateLimitLayer::new(TokenBucket::per_hour(5));
    let fails = get(async || (StatusCode::BAD_GATEWAY, "a proxy"));
    let routes = Router::new().route("/admin/parts", fails);
    let Some((_runtime, mut tab)) = open([&layer], None, routes) else {
        return;
    };
    tab.wait_until(
        "document.getElementById('live').textContent
           === 'not up to date: the application answered with status 502'",
    );
    tab.expect_problem("status of 502");
}

/// The samples of five minutes of a page with this many policies, all of them busy.
fn five_minutes(policies: usize) -> String {
    let rates =
        |name: String| json!({ "name": name, "allowed": 1.0, "denied": 1.0, "shadow_denied": 0.0 });
    let policies = (0..policies).map(|number| rates(format!("policy {number}")));
    let mut limiter = rates("many".to_owned());
    limiter["policies"] = policies.collect();
    limiter["sources"] = json!({ "store": 2.0 });
    let sample = |second: u64| {
        let at_ms = 1_795_242_000_000 + second * 1_000;
        let sample = json!({
            "at_ms": at_ms, "over_ms": 1_000, "limiters": [limiter], "version": 0,
            "stores": [{ "name": "memory", "up": true }],
        });
        sample.to_string()
    };
    let samples: Vec<_> = (0..300).map(sample).collect();
    format!("[{}]", samples.join(","))
}

#[test]
fn a_page_of_a_thousand_policies_answers_its_user() {
    const POLICIES: usize = 1_000;

    let policies = (0..POLICIES)
        .map(|number| Policy::new(format!("policy {number}"), TokenBucket::per_second(5)));
    let builder = policies.fold(Limiter::builder().name("many"), |builder, policy| {
        builder.policy(policy)
    });
    let limiter = builder.build().expect("a limiter");
    let samples: &'static str = five_minutes(POLICIES).leak();
    let samples = get(async move || ([(CONTENT_TYPE, "application/json")], samples));
    let routes = Router::new().route("/admin/api/v1/samples", samples);
    let Some((_runtime, mut tab)) = open([&limiter], None, routes) else {
        return;
    };
    tab.wait_until("document.querySelectorAll('#policies tbody svg path').length === 1000");
    tab.evaluate("(globalThis.ticks = 0, setInterval(() => { ticks += 1; }, 100), null)");
    // They take a second on a page with nothing else to do.
    tab.wait_until("ticks >= 10");
    let choices = "document.querySelectorAll('#traffic-of option').length";
    tab.assert_is(choices, 2 + POLICIES);
    assert_eq!(tab.overflow(), 0);
    assert_eq!(tab.problems(), [""; 0]);
}

/// The server writes numbers and times as the script does: a test of it reads the same examples.
#[test]
fn words_of_the_script_are_those_of_the_server() {
    const PAGE: &str = concat!(
        "<!doctype html><title>words</title><script type=\"module\">",
        include_str!("../../src/page/assets/words.js"),
        "const since = (form) => (at, now) => FORMS[form](at - now);
        globalThis.words = { count, duration, ago: since('ago'), ahead: since('in') };
        </script>",
    );
    let Some(mut tab) = Tab::open() else { return };
    tab.navigate(&format!("http://{}/", serve_page(PAGE)));
    let mut tried = BTreeSet::new();
    for example in include_str!("../../src/page/words.txt").lines() {
        let (call, expected) = example.split_once(" = ").expect("an example");
        let (name, numbers) = call.split_once(' ').expect("a name");
        // Only the server writes shares.
        if name == "share" {
            continue;
        }
        let numbers = numbers.replace(' ', ", ");
        let words = tab.text(&format!("words.{name}({numbers})"));
        assert_eq!(words, expected, "{call}");
        tried.insert(name);
    }
    assert_eq!(tried.len(), 4);
    assert_eq!(tab.problems(), [""; 0]);
}
