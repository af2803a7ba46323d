//! Which requests a layer limits, by where it is added to a router: the table of `docs/routes.md`.

use axum::{
    Router,
    body::Body,
    http::{Method, Request},
    routing::get,
};

use crate::prelude::*;

fn limits() -> RateLimitLayer {
    RateLimitLayer::new(Policy::new("all", TokenBucket::per_minute(5)).key(key::global()))
}

async fn ask(app: &Router, method: Method, path: &str) -> (u16, bool) {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let is_limited = response.headers().contains_key("ratelimit");
    (response.status().as_u16(), is_limited)
}

#[tokio::test]
async fn a_layer_limits_what_the_guide_says_of_its_place() {
    let handler = || get(|| async { "hello" });
    let router = || Router::new().route("/", handler());
    // Of a wrong method and a wrong path.
    let places = [
        (
            Router::new().route("/", handler().route_layer(limits())),
            [false, false],
        ),
        (
            Router::new().route("/", handler().layer(limits())),
            [true, false],
        ),
        (router().route_layer(limits()), [true, false]),
        (router().layer(limits()), [true, true]),
    ];
    for (place, (app, [wrong_method, wrong_path])) in places.into_iter().enumerate() {
        let app = app.route("/later", handler());
        assert_eq!(ask(&app, Method::GET, "/").await, (200, true), "{place}");
        let answer = ask(&app, Method::POST, "/").await;
        assert_eq!(answer, (405, wrong_method), "{place}");
        let answer = ask(&app, Method::GET, "/missing").await;
        assert_eq!(answer, (404, wrong_path), "{place}");
        let answer = ask(&app, Method::GET, "/later").await;
        assert_eq!(answer, (200, false), "{place}");
    }
}
