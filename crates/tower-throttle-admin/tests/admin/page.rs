//! The page: what the server renders, for browsers with and without scripts.

use axum::{Router, body::Body, routing::get};
use http::Request;
use serde_json::Value;
use tower_throttle::control::Control;
use tower_throttle_admin::{Access, Admin, Who};

use crate::support::prelude::*;
use crate::{
    asked::{self, Answer, form},
    operator::{Operator, each},
    support::web::{Down, layer_on},
};

/// Ends an attribute, an element, and a script.
const HOSTILE: &str = "\"'></td></script><img src=x onerror=alert(1)>";
/// What a key or a user can hold besides.
const WORSE: &str =
    "\u{202e}\u{2028}<svg/onload=alert(2)>\"'></textarea></title><script>alert(3)</script>";

/// A layer with two policies and a control document.
fn limits(control: &Control) -> RateLimitLayer {
    RateLimitLayer::builder()
        .name("api")
        .store(MemoryStore::new())
        .control(control.clone())
        .policy(Policy::new("burst", TokenBucket::per_hour(2)).key(key::header("x-api-key")))
        .policy(Policy::new("hourly", TokenBucket::per_hour(1_000)).key(key::header("x-api-key")))
        .name_offenders(|_| Some(HOSTILE.to_owned()))
        .build()
        .expect("limits")
}

fn set_up() -> (Control, RateLimitLayer, Operator) {
    let control = Control::in_memory();
    let limits = limits(&control);
    let operator = Operator::new(Admin::new(&limits).control(&control));
    (control, limits, operator)
}

async fn send(limits: &RateLimitLayer, key: &str, requests: usize) {
    let app: Router = Router::new()
        .route("/", get(async || {}))
        .layer(limits.clone());
    for _ in 0..requests {
        let request = Request::get("/").header("x-api-key", key);
        let request = request.body(Body::empty()).expect("a request");
        app.clone().oneshot(request).await.expect("a response");
    }
}

async fn page(operator: &Operator) -> String {
    let answer = asked::get("/").send(&operator.router()).await;
    assert_eq!(answer.status, 200);
    answer.body
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).expect(start);
    rest.split_once(end).expect(end).0
}

/// Returns the rows of a table: the texts of their cells.
fn rows(page: &str, id: &str) -> Vec<Vec<String>> {
    let body = between(page, &format!("<tbody id=\"{id}-part\""), "</tbody>");
    let cells = |row: &str| {
        let cells = row.split("</t").map(text);
        cells.filter(|cell| !cell.is_empty()).collect()
    };
    body.split("<tr").skip(1).map(cells).collect()
}

/// Leaves the tags out.
fn text(markup: &str) -> String {
    let texts = markup.split('>').skip(1);
    texts.filter_map(|text| text.split('<').next()).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

#[tokio::test]
async fn the_page_shows_what_the_api_says() {
    let (control, limits, operator) = set_up();
    for (key, requests) in [("ann", 3), ("carl", 3), ("ann", 1), ("carl", 1), ("ann", 1)] {
        send(&limits, key, requests).await;
    }
    let ban = control.ban("hourly", "bob", Duration::from_secs(3_600));
    ban.author("ann").because("scraping").await.expect("a ban");
    let page = page(&operator).await;
    // Some cells have more below.
    let assert_rows = |id, expected: &[&[&str]]| {
        let found = rows(&page, id);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (row, expected) in found.iter().zip(expected) {
            let mut both = row.iter().zip(*expected);
            assert!(both.all(|(cell, start)| cell.starts_with(start)), "{row:?}");
        }
    };
    let quotas = each(&operator.get("policies").await, "quota mode counts_by");
    let key = "the header `x-api-key`";
    assert_eq!(quotas[0], serde_json::json!(["2 per hour", "enforce", key]));
    let api_key = "the header x-api-key";
    assert_rows(
        "policies",
        &[
            &["burst", api_key, "2 per hour", "enforce", "4", "5", "0"],
            &["hourly", api_key, "1000 per hour", "enforce", "9", "0", "0"],
        ],
    );
    let metrics = operator.get("metrics").await;
    let checks = "allowed near denied impossible key_missing".split(' ');
    let checks = checks.map(|name| number(&metrics[0]["policies"][0]["checks"][name]));
    assert_eq!(checks.sum::<u64>(), 9);
    let sources = rows(&page, "sources");
    let decisions = metrics[0]["decisions"]["store"].to_string();
    assert_eq!(sources[0][1..], ["100 %".to_owned(), decisions]);

    let top = operator.get("top").await;
    let fingerprint = top[0]["fingerprint"].as_str().expect("a fingerprint");
    assert_eq!(rows(&page, "top")[0][2], "3");
    assert!(between(&page, "<table id=\"top\"", "</table>").contains(fingerprint));

    let shown = format!("{}…", &fingerprint[..10]);
    // Equal denials are one row.
    let of_ann = [&*shown, "no roomburst", "GET"];
    assert_rows("denials", &[&of_ann, &["", "no roomburst", "GET"]]);
    let denials = operator.get("denials").await;
    assert_eq!(denials.as_array().map(Vec::len), Some(5));
    for (row, times) in rows(&page, "denials").iter().zip(["3 times", "2 times"]) {
        assert!(row[3].ends_with(times), "{row:?}");
    }
    assert_rows("entries", &[&["ban denies all requests", "ann", "in "]]);
    assert!(rows(&page, "entries")[0][1].ends_with("scraping"));
    let tile = between(&page, "id=\"tile-document\"", "</div>");
    assert!(tile.contains("1 entry"), "{tile}");
    assert!(page.contains("No Redis: in memory"));
}

#[tokio::test]
async fn a_page_without_traffic_says_that_there_is_none() {
    let page = page(&Operator::new(Admin::new(&limits(&Control::in_memory())))).await;
    let texts = "No denial yet.|No caller has been denied.|Nothing is changed by hand.|\
                 Each process counts for itself|In code|Not in use";
    for text in texts.split('|') {
        assert!(page.contains(text), "{text}");
    }
}

/// Asks by the form of the page.
async fn look_up(router: &Router, fields: &[(&str, &str)]) -> Answer {
    let mut encoded = url::form_urlencoded::Serializer::new(String::new());
    let encoded = encoded.extend_pairs(fields).finish();
    form("/look-up", encoded).send(router).await
}

/// Returns the answer to a look-up.
fn result_of(page: &str) -> &str {
    let start = "<div id=\"result\" data-part=\"answer\">";
    between(page, start, "</section>")
}

#[tokio::test]
async fn a_browser_without_scripts_looks_a_caller_up() {
    let (_, limits, operator) = set_up();
    send(&limits, "k 1", 3).await;
    let router = operator.router();
    let asked = [("caller", "header:x-api-key=k 1"), ("policy", "")];
    let page = look_up(&router, &asked).await.body;
    let result = result_of(&page);
    let found = operator.look_up("header:x-api-key=k 1").await;
    for policy in found["policies"].as_array().expect("policies") {
        let left = format!("{} of {}", policy["remaining"], policy["limit"]);
        let left = format!("<b>{} left</b>", left.replace("1000", "1,000"));
        assert!(result.contains(&left), "{left}: {result}");
        assert!(result.contains(policy["fingerprint"].as_str().expect("a fingerprint")));
    }
    assert!(result.contains("✕</span>No room") && result.contains("✓</span>Has room"));
    assert!(text(&format!(">{result}")).contains("Denied by “burst”."));

    let page = look_up(&router, &[("caller", "k1"), ("policy", "burst")]).await;
    assert_eq!(result_of(&page.body).matches("<article").count(), 1);
    let page = look_up(&router, &[("caller", "k1"), ("policy", "absent")]).await;
    assert_eq!(page.status, 200);
    let problem = between(&page.body, "id=\"ask-problem\"", "</p>");
    assert!(problem.contains("burst, hourly"), "{problem}");
    assert!(result_of(&page.body).starts_with("</div>"));

    let wrong = "caller=ann&other=1 caller=ann&caller=bob link=%22 caller=ann&tier=1";
    for fields in wrong.split(' ') {
        let answer = form("/look-up", fields).send(&router).await;
        let has_problem = answer.body.contains("is not what this path takes");
        assert!(answer.status == 400 || has_problem, "{fields}: {answer:?}");
    }
}

#[track_caller]
fn assert_is_plain(page: &str) {
    let page = page.to_lowercase();
    for markup in "<img <svg/ alert(1)> <script> \u{202e} \u{2028}".split(' ') {
        assert!(!page.contains(markup), "{markup}: {page}");
    }
}

#[tokio::test]
async fn texts_of_others_stay_texts() {
    let control = Control::in_memory();
    let policy = Policy::new(HOSTILE, FixedWindow::per_day(1));
    let builder = Limiter::builder().name(HOSTILE).policy(policy);
    let limiter = builder.control(control.clone()).build().expect("a limiter");
    let ban = control.ban(HOSTILE, WORSE, Duration::from_secs(3_600));
    let ban = ban.author(HOSTILE).because(HOSTILE).label(HOSTILE);
    ban.await.expect("a ban");
    let admin = Admin::new(&limiter).control(&control).allow_changes();
    let router = admin.access(Access::check(|_| Some(Who::new(WORSE))));
    let router = router.into_router();

    let page = asked::get("/").send(&router).await.body;
    assert_is_plain(&page);
    assert!(page.contains("&lt;img src=x"), "{page}");
    for text in [HOSTILE, WORSE] {
        for asked in [
            [("caller", text), ("policy", "")],
            // Of a policy that is not there.
            [("caller", "ann"), ("policy", text)],
        ] {
            let page = look_up(&router, &asked).await;
            assert_eq!(page.status, 200);
            assert_is_plain(&page.body);
        }
    }
    // The API is JSON, and no browser takes it for a page.
    let entries = asked::get("/api/v1/entries").send(&router).await;
    assert!(entries.body.contains("<img"), "{entries:?}");
    assert_eq!(entries.field("content-type"), "application/json");
}

/// A store that does not say how many buckets it has is none without buckets.
#[tokio::test]
async fn unknown_numbers_of_a_store_are_no_zeros() {
    let layer = layer_on(Down, Policy::new("plan", TokenBucket::per_hour(2)).shared());
    let operator = Operator::new(Admin::new(&layer));
    let stores = async || rows(&page(&operator).await, "stores").remove(0);
    assert_eq!(stores().await[2..], ["-", "0", "-"]);
    send(&layer, "ann", 1).await;
    assert_eq!(stores().await[2..], ["-", "1", "-1 local"]);
}

#[tokio::test]
async fn of_many_entries_the_latest_are_shown() {
    let (control, _, operator) = set_up();
    for number in 0..501 {
        let ban = control.ban("burst", number, Duration::from_secs(3_600));
        ban.label(format!("caller {number}")).await.expect("a ban");
    }
    let page = page(&operator).await;
    assert!(page.contains("the latest 500 of 501"));
    assert!(!page.contains("caller 0<") && page.contains("caller 1<"));
    assert!(page.contains("caller 500<"));
}

/// What the guide names is on the page, and the other way round.
#[tokio::test]
async fn the_guide_has_all_parts_of_the_page() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/admin.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let parts = guide.split("\n| **").skip(1);
    let mut parts: Vec<_> = parts.filter_map(|row| row.split("**").next()).collect();
    let operator = Operator::of(Admin::new(&limits(&Control::in_memory())));
    let page = page(&operator).await;
    let titles = page.split("</h2>");
    let titles = titles.filter_map(|before| before.rsplit('>').next());
    let is_part = |title: &&str| !title.trim().is_empty() && *title != "Look up a caller";
    let mut titles: Vec<_> = titles.filter(is_part).collect();
    parts.sort_unstable();
    titles.sort_unstable();
    assert_eq!(parts, titles);
}

/// A policy whose quota each request chooses says nothing of a caller until a tier is chosen.
#[tokio::test]
async fn a_policy_with_tiers_offers_them() {
    let quota: Quota = "3 per hour".parse().expect("a quota");
    let plan = Policy::new("plan", TokenBucket::per_hour(1))
        .key(key::header("x-api-key"))
        .quota_by(move |_| quota);
    let limits = layer_on(MemoryStore::new(), plan);
    send(&limits, "ann", 2).await;
    let router = Operator::new(Admin::new(&limits)).router();
    let page = look_up(&router, &[("caller", "ann"), ("policy", "")]).await;
    let tier = between(&page.body, "name=\"tier\" value=\"", "\"").replace("&quot;", "\"");
    assert_eq!(tier, r#"["plan","3 per hour"]"#);
    let asked = [("caller", "ann"), ("policy", ""), ("tier", &tier)];
    let answer = look_up(&router, &asked).await.body;
    let result = result_of(&answer);
    assert!(result.contains("<b>1 of 3 left</b>"), "{result}");
}
