//! Texts of others in the page: names, keys, labels and reasons with markup in them.

use axum::Router;
use http::StatusCode;
use tower_throttle::control::Control;
use tower_throttle_admin::{Access, Admin, Who};

use super::{Answer, form, get, post};
use crate::support::prelude::*;

/// Ends an attribute, an element, and a script.
const HOSTILE: &str = "\"'></td></script><img src=x onerror=alert(1)>";
/// What a key, a label or a reason can hold besides.
const WORSE: &str =
    "\u{202e}\u{2028}<svg/onload=alert(2)>\"'></textarea></title><script>alert(3)</script>";

#[track_caller]
fn assert_is_plain(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let body = answer.body.to_lowercase();
    for markup in [
        "<img",
        "<svg/",
        "alert(1)>",
        "<script>",
        "onerror=alert(1)>",
    ] {
        assert!(!body.contains(markup), "{markup}: {body}");
    }
}

#[tokio::test]
async fn texts_of_others_stay_texts() {
    let control = Control::in_memory();
    let policy = Policy::new(HOSTILE, FixedWindow::per_day(1));
    let limiter = Limiter::builder()
        .store(MemoryStore::new())
        .name(HOSTILE)
        .policy(policy)
        .control(control.clone())
        .build()
        .expect("a limiter");
    control
        .ban(HOSTILE, WORSE, Duration::from_secs(60))
        .author(HOSTILE)
        .because(HOSTILE)
        .label(HOSTILE)
        .await
        .expect("a ban");
    let admin = Admin::new(&limiter)
        .control(&control)
        .access(Access::check(|_| Some(Who::new(WORSE))))
        .allow_changes();
    let router = Router::new().nest("/admin", admin.into_router());

    let page = get("/admin").send(&router).await;
    assert_is_plain(&page);
    assert!(page.body.contains("&lt;img src=x"), "{page:?}");
    // A look-up by a form, of the key as somebody typed it.
    for caller in [HOSTILE, WORSE] {
        let encoded: String = caller.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let body = format!("caller={encoded}&policy=");
        let page = form("/admin/look-up", &body).send(&router).await;
        assert_is_plain(&page);
        // Of a policy that is not there.
        let body = format!("caller=ann&policy={encoded}");
        let page = form("/admin/look-up", &body).send(&router).await;
        assert_is_plain(&page);
    }
    // The API is JSON, and no browser takes it for a page.
    let entries = get("/admin/api/v1/entries").send(&router).await;
    assert!(entries.body.contains("<img"), "{entries:?}");
    assert_eq!(entries.field("content-type"), "application/json");
    let body = serde_json::json!({ "caller": WORSE, "policy": HOSTILE });
    let look_up = post("/admin/api/v1/lookup", &body.to_string())
        .send(&router)
        .await;
    assert_eq!(look_up.field("content-type"), "application/json");
    assert!(look_up.body.contains(r#""banned":true"#), "{look_up:?}");
}
