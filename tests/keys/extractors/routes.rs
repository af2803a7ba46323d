//! The route, as a real `Router` matches it.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::connect_info::MockConnectInfo,
    middleware::{Next, from_fn},
    routing::get,
};
use http::{Method, Request, StatusCode};

use super::{extract, request};
use crate::support::prelude::*;

fn routes() -> Router {
    let inner = Router::new().route("/{id}", get(|| async {}));
    Router::new()
        .route("/users/{id}", get(|| async {}).post(|| async {}))
        .route("/posts/{id}", get(|| async {}))
        .route("/posts/latest", get(|| async {}))
        .route("/files/{*path}", get(|| async {}))
        .nest("/nested", inner)
}

async fn key_of(method: Method, path: &str) -> Key {
    let seen: Arc<Mutex<Vec<Key>>> = Arc::default();
    let notes = Arc::clone(&seen);
    let note = from_fn(move |request: axum::extract::Request, next: Next| {
        let key = key::matched_route().extract(&RequestHead::from(&request));
        notes.lock().unwrap().push(key.unwrap());
        next.run(request)
    });
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::empty()).unwrap();
    routes().layer(note).oneshot(request).await.unwrap();
    let mut keys = seen.lock().unwrap();
    assert_eq!(keys.len(), 1, "{path}");
    keys.pop().unwrap()
}

#[tokio::test]
async fn parameters_make_no_new_callers() {
    for (one, other, same) in [
        ("/users/1", "/users/2", true),
        ("/users/1", "/users/1?page=2", true),
        ("/users/1", "/users/%7Bid%7D", true),
        ("/users/1", "/posts/1", false),
        ("/posts/1", "/posts/latest", false),
        ("/files/a", "/files/a/b/c", true),
        ("/nested/1", "/nested/2", true),
        ("/nested/1", "/users/1", false),
        ("/users/1", "/nowhere", false),
        ("/nowhere", "/users/1/2", true),
        ("/nowhere", "/", true),
        ("/nowhere", "/a/b/c?d", true),
    ] {
        let (left, right) = (
            key_of(Method::GET, one).await,
            key_of(Method::GET, other).await,
        );
        assert_eq!(left == right, same, "{one} / {other}");
    }
    assert_eq!(
        key_of(Method::GET, "/users/1").await,
        key_of(Method::POST, "/users/1").await,
        "the method is another key"
    );
}

#[tokio::test]
async fn a_path_never_equals_no_route() {
    for path in ["/?", "/%3F", "/users/?", "/posts/%3F"] {
        let key = key_of(Method::GET, path).await;
        let nowhere = key_of(Method::GET, "/nowhere").await;
        assert_eq!(key == nowhere, !path.starts_with("/posts"), "{path}");
    }
}

#[test]
fn outside_a_router_there_is_one_key() {
    let mut one = request::<&str>(&[]);
    *one.uri_mut() = "/users/1".parse().unwrap();
    let other = request::<&str>(&[]);
    let keys = [one, other].map(|request| extract(&key::matched_route(), &request));
    assert!(keys[0].is_ok());
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], Ok(Key::everyone()));
    assert_ne!(keys[0], Ok(Key::from("")));
}

#[tokio::test]
async fn a_limit_for_each_route() {
    let once_a_day = TokenBucket::per_day(1);
    let by = (key::peer(), key::matched_route());
    let limit = RateLimitLayer::new(Policy::new("route", once_a_day).key(by));
    let peer: SocketAddr = "203.0.113.9:1".parse().unwrap();
    let app = routes().layer(limit).layer(MockConnectInfo(peer));
    for (path, expected) in [
        ("/users/1", StatusCode::OK),
        ("/users/2", StatusCode::TOO_MANY_REQUESTS),
        ("/posts/1", StatusCode::OK),
        ("/posts/2", StatusCode::TOO_MANY_REQUESTS),
        ("/posts/latest", StatusCode::OK),
        ("/nested/1", StatusCode::OK),
        ("/nested/2", StatusCode::TOO_MANY_REQUESTS),
        ("/nowhere", StatusCode::NOT_FOUND),
        ("/elsewhere", StatusCode::TOO_MANY_REQUESTS),
    ] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), expected, "{path}");
    }
}
