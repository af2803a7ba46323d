//! Access by the application's own check.

use axum::{Router, extract::Request, middleware};
use http::StatusCode;
use tower_throttle::RequestHead;
use tower_throttle_admin::{Access, Who};

use super::{ANN, App, RESET, STATUS, get, post};

#[derive(Clone)]
struct User(&'static str);

fn by_field(head: &RequestHead<'_>) -> Option<Who> {
    let user = head.headers().get("x-user")?.to_str().ok()?;
    (user != "mallory").then(|| Who::new(user))
}

#[tokio::test]
async fn the_check_decides_for_every_path() {
    let app = App::new(Access::check(by_field));
    let targets = "/admin /admin/api/v1/status /admin/admin.css /admin/unknown /admin/session";
    for target in targets.split(' ') {
        app.denies(&get(target), 403, "no-access").await;
        let mallory = get(target).with("x-user", "mallory");
        app.denies(&mallory, 403, "no-access").await;
        let allowed = app.ask(&get(target).with("x-user", "ann")).await;
        assert_ne!(allowed.status, StatusCode::FORBIDDEN);
    }
    app.denies(&post(RESET, ANN), 403, "no-access").await;
    assert!(!app.was_reset());
    app.allows(&post(RESET, ANN).with("x-user", "ann")).await;
    assert!(app.was_reset());
}

/// From any machine, and through proxies.
#[tokio::test]
async fn the_check_reads_what_earlier_layers_found_out() {
    let access = Access::check(|head| Some(Who::new(head.extensions().get::<User>()?.0)));
    let app = App::with(access, |admin| admin.hosts(["ops.example"]));
    let authenticate = middleware::map_request(async |mut request: Request| {
        if request.headers().contains_key("x-ann") {
            request.extensions_mut().insert(User("ann"));
        }
        request
    });
    let router: Router = app.router.clone().layer(authenticate);
    let asked = get(STATUS)
        .peer("203.0.113.9:1")
        .with("host", "ops.example")
        .with("x-forwarded-for", "203.0.113.7");
    asked.send(&router).await.assert_is(403, "no-access");
    let answer = asked.with("x-ann", "1").send(&router).await;
    answer.assert_done();
    assert!(answer.body.contains(r#""who":"ann""#), "{answer:?}");
}

/// An application may put a `Who` into its requests, for its own check.
#[tokio::test]
async fn a_name_that_the_application_knows_is_no_access_with_a_secret() {
    let authenticate = middleware::map_request(async |mut request: Request| {
        request.extensions_mut().insert(Who::new("ann"));
        request
    });
    let app = App::bearer();
    let with_name: Router = app.router.clone().layer(authenticate);
    for target in ["/admin", STATUS, "/admin/session"] {
        let with = get(target).send(&with_name).await;
        let without = get(target).send(&app.router).await;
        assert_eq!((with.status, with.body), (without.status, without.body));
    }
}
