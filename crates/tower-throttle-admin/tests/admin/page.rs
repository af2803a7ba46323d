//! The page: what the server renders, for browsers with and without scripts.

use axum::{Router, body::Body, routing::get};
use http::{HeaderValue, Method, Request, StatusCode};
use tower_throttle::control::Control;
use tower_throttle_admin::{Access, Admin, Who};

use crate::support::prelude::*;
use crate::{
    operator::{self, Operator, Said, request},
    support::web::{Down, layer_on},
};

const HOSTILE: &str = "\"><img src=x onerror=alert(1)>\u{202e}<!--'&amp;";

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
    let operator = Operator::new(&limits).with(&control);
    (control, limits, operator)
}

async fn send(limits: &RateLimitLayer, key: &str, requests: usize) {
    let app: Router = Router::new()
        .route("/", get(|| async {}))
        .layer(limits.clone());
    for _ in 0..requests {
        let request = Request::get("/").header("x-api-key", key);
        let request = request.body(Body::empty()).expect("a request");
        app.clone().oneshot(request).await.expect("a response");
    }
}

async fn page(operator: &Operator) -> String {
    let said = operator.send(Method::GET, "/", "").await;
    assert_eq!(said.status, StatusCode::OK);
    said.text
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).expect(start);
    rest.split_once(end).expect(end).0
}

/// Returns the rows of a table: the texts of their cells.
fn rows(page: &str, id: &str) -> Vec<Vec<String>> {
    let table = between(
        page,
        &format!("<table id=\"{id}\"")
            .replace("<table id=\"sources", "<table class=\"bars\" id=\"sources"),
        "</table>",
    );
    let body = table.split_once("<tbody").expect("a body").1;
    let rows = body.split("<tr").skip(1);
    let cells = |row: &str| {
        row.split("</t")
            .map(text)
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    rows.map(cells).collect()
}

/// Leaves the tags out.
fn text(markup: &str) -> String {
    let markup = markup.split_once('>').map_or("", |(_, rest)| rest);
    let mut parts = markup.split('<');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.filter_map(|part| Some(part.split_once('>')?.1));
    rest.fold(first, |all, part| all + part)
}

#[tokio::test]
async fn the_page_shows_what_the_api_says() {
    let (control, limits, operator) = set_up();
    send(&limits, "ann", 5).await;
    let ban = control.ban("hourly", "bob", Duration::from_secs(3_600));
    ban.author("ann").because("scraping").await.expect("a ban");
    let page = page(&operator).await;

    let metrics = operator.get("metrics").await;
    let policies = operator.get("policies").await;
    let table = rows(&page, "policies");
    assert_eq!(table.len(), 2);
    for (index, row) in table.iter().enumerate() {
        let checks = &metrics[0]["policies"][index]["checks"];
        let number = |name: &str| checks[name].as_u64().expect("a number");
        let allowed = number("allowed") + number("near");
        let denied = number("denied") + number("impossible") + number("key_missing");
        assert!(row[0].starts_with(policies[index]["name"].as_str().expect("a name")));
        assert_eq!(row[1], "the header x-api-key");
        assert!(row[2].starts_with(policies[index]["quota"].as_str().expect("a quota")));
        assert!(row[3].starts_with(policies[index]["mode"].as_str().expect("a mode")));
        assert_eq!(row[4], allowed.to_string(), "{row:?}");
        assert_eq!(row[5], denied.to_string(), "{row:?}");
    }
    assert_eq!((&*table[0][4], &*table[0][5]), ("2", "3"));

    let decisions = &metrics[0]["decisions"]["store"];
    assert_eq!(
        rows(&page, "sources")[0][1..],
        ["100 %".to_owned(), decisions.to_string()]
    );

    let top = operator.get("top").await;
    let fingerprint = top[0]["fingerprint"].as_str().expect("a fingerprint");
    let offender = &rows(&page, "top")[0];
    assert_eq!(offender[2], "3", "{offender:?}");
    assert!(between(&page, "<table id=\"top\"", "</table>").contains(fingerprint));

    let denials = operator.get("denials").await;
    let shown = rows(&page, "denials");
    assert_eq!(shown.len(), denials.as_array().expect("denials").len());
    assert!(fingerprint.starts_with(shown[0][0].trim_end_matches(['…', ' '])));
    assert_eq!(shown[0][1], "no roomburst", "{shown:?}");

    let entry = &rows(&page, "entries")[0];
    assert!(entry[0].starts_with("ban denies all requests"), "{entry:?}");
    assert!(
        entry[1].starts_with("ann") && entry[1].ends_with("scraping"),
        "{entry:?}"
    );
    assert!(entry[2].starts_with("in "), "{entry:?}");

    let status = operator.get("status").await;
    let tile = text(&format!(
        ">{}",
        between(&page, "id=\"tile-document\"", "</div>")
    ));
    assert!(
        tile.contains("1 entry") && status["control"]["entries"] == 1,
        "{tile}"
    );
    assert!(page.contains("No Redis: in memory"));
}

#[tokio::test]
async fn equal_denials_are_one_row() {
    let (_, limits, operator) = set_up();
    for key in ["ann", "bob"] {
        send(&limits, key, 2).await;
    }
    for _ in 0..3 {
        send(&limits, "ann", 1).await;
        send(&limits, "bob", 1).await;
    }
    let denials = operator.get("denials").await;
    assert_eq!(denials.as_array().expect("denials").len(), 6);
    let shown = rows(&page(&operator).await, "denials");
    assert_eq!(shown.len(), 2, "{shown:?}");
    for row in shown {
        assert!(row[3].ends_with("3 times"), "{row:?}");
    }
}

#[tokio::test]
async fn a_page_without_traffic_says_that_there_is_none() {
    let limits = limits(&Control::in_memory());
    let page = page(&Operator::new(&limits)).await;
    for text in [
        "No denial yet.",
        "No caller has been denied.",
        "Nothing is changed by hand.",
        "Each process counts for itself",
        "In code",
        "Not in use",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

/// Asks by the form of the page.
async fn look_up(router: &Router, fields: &[(&str, &str)]) -> Said {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    let form = form.extend_pairs(fields).finish();
    send_form(router, form).await
}

async fn send_form(router: &Router, form: String) -> Said {
    let mut request = request(Method::POST, "/look-up", form);
    let headers = request.headers_mut();
    headers.remove("x-tower-throttle");
    for (name, value) in [
        ("content-type", "application/x-www-form-urlencoded"),
        ("origin", "http://localhost"),
        ("sec-fetch-site", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    operator::send(router, request).await
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
    let page = look_up(&router, &asked).await.text;
    let result = result_of(&page);
    let found = operator.look_up("header:x-api-key=k 1").await;
    for policy in found["policies"].as_array().expect("policies") {
        let left = format!("{} of {}", policy["remaining"], policy["limit"]);
        let left = left.replace("1000", "1,000");
        assert!(
            result.contains(&format!("<b>{left} left</b>")),
            "{left}: {result}"
        );
        assert!(result.contains(policy["fingerprint"].as_str().expect("a fingerprint")));
    }
    assert!(result.contains("✕</span>No room") && result.contains("✓</span>Has room"));
    assert!(text(&format!(">{result}")).contains("Denied by “burst”."));

    let asked = [("caller", "k1"), ("policy", "burst")];
    let page = look_up(&router, &asked).await.text;
    let result = result_of(&page);
    assert_eq!(result.matches("<article").count(), 1);

    let asked = [("caller", "k1"), ("policy", "absent")];
    let Said { status, text, .. } = look_up(&router, &asked).await;
    assert_eq!(status, StatusCode::OK);
    let problem = between(&text, "id=\"ask-problem\"", "</p>");
    assert!(problem.contains("burst, hourly"), "{problem}");
    assert!(result_of(&text).starts_with("</div>"));
}

/// Returns the answer to a path.
async fn fetch(router: &Router, path: &str) -> Said {
    let said = operator::send(router, request(Method::GET, path, "")).await;
    assert_eq!(said.status, StatusCode::OK, "{path}");
    said
}

#[tokio::test]
async fn the_page_finds_its_files_wherever_it_is() {
    let limits = limits(&Control::in_memory());
    let admin = || {
        let access = Access::check(|_| Some(Who::new("ann")));
        Admin::new(&limits).access(access).into_router()
    };
    let nested = Router::new().nest("/admin", admin());
    let service = |path| Router::new().nest_service(path, admin());
    for (router, pages) in [
        (admin(), &["/"][..]),
        (nested, &["/admin"]),
        (service("/admin"), &["/admin", "/admin/"]),
        (service("/a/b"), &["/a/b", "/a/b/"]),
    ] {
        for page in pages {
            let markup = fetch(&router, page).await.text;
            let start = between(&markup, "<script type=\"module\" src=\"", "admin.js");
            assert!(markup.contains(&format!("action=\"{start}look-up\"")));
            for (attribute, file, kind) in [
                ("href", "admin.css", "text/css"),
                ("src", "admin.js", "text/javascript"),
                ("href", "admin.svg", "image/svg+xml"),
            ] {
                let link = format!("{attribute}=\"{start}{file}\"");
                assert!(markup.contains(&link), "{file}");
                // As a browser resolves it.
                let folder = page.rsplit_once('/').expect("a slash").0;
                let path = format!("{folder}/{}", start.trim_start_matches("./")) + file;
                let found = fetch(&router, &path).await;
                assert!(found.kind().starts_with(kind), "{path}: {found:?}");
                assert!(!found.text.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn somebody_unknown_sees_the_form_for_the_token() {
    let limits = limits(&Control::in_memory());
    let access = Access::bearer("a secret of a test".replace(' ', "-")).expect("a secret");
    let router = Admin::new(&limits).access(access).into_router();
    let said = fetch(&router, "/").await;
    assert_eq!(said.kind(), "text/html; charset=utf-8");
    let page = said.text;
    assert!(page.contains("type=\"password\"") && page.contains("action=\"./session\""));
    assert!(!page.contains("burst") && !page.contains("id=\"policies\""));
    for file in ["/admin.css", "/admin.svg"] {
        fetch(&router, file).await;
    }
}

/// A store that does not say how many buckets it has is none without buckets.
#[tokio::test]
async fn unknown_numbers_of_a_store_are_no_zeros() {
    let layer = layer_on(Down, Policy::new("plan", TokenBucket::per_hour(2)).shared());
    let operator = Operator::new(&layer);
    let stores = async || rows(&page(&operator).await, "stores").remove(0);
    assert_eq!(stores().await[2..], ["-", "0", "-"]);
    send(&layer, "ann", 1).await;
    assert_eq!(stores().await[2..], ["-", "1", "-1 local"]);
}

#[tokio::test]
async fn of_many_entries_the_latest_are_shown() {
    let control = Control::in_memory();
    for number in 0..501 {
        let ban = control.ban("burst", number, Duration::from_secs(60));
        ban.label(format!("caller {number}")).await.expect("a ban");
    }
    let page = page(&Operator::new(&limits(&control)).with(&control)).await;
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
    let mut parts: Vec<&str> = parts
        .map(|row| row.split("**").next().expect("a name"))
        .collect();
    let operator = Operator::new(&limits(&Control::in_memory())).who_only_looks();
    let page = page(&operator).await;
    let titles = page.split("</h2>");
    let titles = titles.map(|before| before.rsplit('>').next().expect("a title"));
    let mut titles: Vec<&str> = titles.filter(|title| !title.trim().is_empty()).collect();
    titles.retain(|title| *title != "Look up a caller");
    parts.sort_unstable();
    titles.sort_unstable();
    assert_eq!(parts, titles);
}

#[tokio::test]
async fn fields_that_the_look_up_does_not_know_are_denied() {
    let operator = Operator::new(&limits(&Control::in_memory()));
    for form in [
        "caller=ann&other=1",
        "caller=ann&caller=bob",
        "link=%22",
        "caller=ann&tier=1",
    ] {
        let said = send_form(&operator.router(), form.to_owned()).await;
        let is_denied = said.status == StatusCode::BAD_REQUEST;
        let has_problem = said.text.contains("is not what this path takes");
        assert!(is_denied || has_problem, "{form}: {said:?}");
    }
}

/// A policy whose quota each request chooses says nothing of a caller until a tier is chosen.
#[tokio::test]
async fn a_policy_with_tiers_offers_them() {
    let quota: Quota = "3 per hour".parse().expect("a quota");
    let plan = Policy::new("plan", TokenBucket::per_hour(1))
        .key(key::header("x-api-key"))
        .quota_by(move |_| quota);
    let limits = RateLimitLayer::builder()
        .store(MemoryStore::new())
        .policy(plan);
    let limits = limits.build().expect("limits");
    send(&limits, "ann", 2).await;
    let operator = Operator::new(&limits);
    let asked = [("caller", "ann"), ("policy", "")];
    let asked = look_up(&operator.router(), &asked).await.text;
    let tier = between(&asked, "name=\"tier\" value=\"", "\"").replace("&quot;", "\"");
    assert_eq!(tier, r#"["plan","3 per hour"]"#);
    let asked = [("caller", "ann"), ("policy", ""), ("tier", &tier)];
    let answer = look_up(&operator.router(), &asked).await.text;
    let result = result_of(&answer);
    assert!(result.contains("<b>1 of 3 left</b>"), "{result}");
}
