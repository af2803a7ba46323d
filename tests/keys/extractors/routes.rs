//! The route, as a real `Router` matches it.

use axum::{
    Router,
    body::Body,
    middleware::{Next, from_fn},
    routing::get,
};
use http::{Method, Request};

use super::{extract, none};
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
        // The mark of no route, as a path.
        ("/nowhere", "/?", true),
        ("/nowhere", "/%3F", true),
        ("/nowhere", "/users/?", true),
        ("/nowhere", "/posts/%3F", false),
    ] {
        let left = key_of(Method::GET, one).await;
        let right = key_of(Method::GET, other).await;
        assert_eq!(left == right, same, "{one} / {other}");
    }
    let [get, post] = [Method::GET, Method::POST].map(|method| key_of(method, "/users/1"));
    assert_eq!(get.await, post.await, "the method is another key");
}

#[test]
fn outside_a_router_there_is_one_key() {
    let mut one = none();
    *one.uri_mut() = "/users/1".parse().unwrap();
    let keys = [one, none()].map(|request| extract(&key::matched_route(), &request).unwrap());
    assert_eq!(keys[0], keys[1]);
    assert!(!keys.contains(&Key::everyone()) && !keys.contains(&Key::from("")));
}
