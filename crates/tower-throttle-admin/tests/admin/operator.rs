//! An operator who calls the API of the admin page.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_throttle::{control::Control, inspect::Inspectable};
use tower_throttle_admin::{Access, Admin, Who};

/// An operator called ann, who may change things.
pub(crate) struct Operator {
    targets: Vec<Arc<dyn Inspectable>>,
    control: Option<Control>,
    may_change: bool,
}

/// What the API answers.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Operator {
    pub(crate) fn new(target: &(impl Inspectable + Clone)) -> Self {
        Self {
            targets: vec![Arc::new(target.clone())],
            control: None,
            may_change: true,
        }
    }

    pub(crate) fn also(mut self, target: &(impl Inspectable + Clone)) -> Self {
        self.targets.push(Arc::new(target.clone()));
        self
    }

    pub(crate) fn with(mut self, control: &Control) -> Self {
        self.control = Some(control.clone());
        self
    }

    pub(crate) fn who_only_looks(mut self) -> Self {
        self.may_change = false;
        self
    }

    /// Returns a new page.
    pub(crate) fn router(&self) -> Router {
        let (first, others) = self.targets.split_first().expect("a target");
        let admin = others
            .iter()
            .fold(Admin::new(first), |admin, other| admin.target(other));
        let admin = match &self.control {
            Some(control) => admin.control(control),
            None => admin,
        };
        let admin = match self.may_change {
            true => admin.allow_changes(),
            false => admin,
        };
        let access = Access::check(|_| Some(Who::new("ann")));
        admin.access(access).into_router()
    }

    /// Asks for a path of the API, and expects success.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let said = self.call(Method::GET, path, "").await;
        assert_eq!(said.status, 200, "{path}: {}", said.text);
        said.json()
    }

    /// Sends a body, and expects success.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let said = self.call(Method::POST, path, body.to_string()).await;
        assert_eq!(said.status, 200, "{path} {body}: {}", said.text);
        said.json()
    }

    /// Looks a caller up, in all policies.
    pub(crate) async fn look_up(&self, caller: impl Into<Value>) -> Value {
        let body = json!({ "caller": caller.into() });
        self.post("lookup", body).await
    }

    /// Sends a body, and expects a problem. Returns its status, code and detail.
    pub(crate) async fn fails(&self, path: &str, body: impl ToString) -> (u16, String, String) {
        let body = body.to_string();
        let said = self.call(Method::POST, path, body.clone()).await;
        let problem = said.json();
        let text = |name: &str| problem[name].as_str().expect("a text").to_owned();
        assert_eq!(problem["status"], said.status.as_u16(), "{body}");
        assert_eq!(said.kind(), "application/problem+json");
        (said.status.as_u16(), text("code"), text("detail"))
    }

    /// Sends a body, and expects a problem of this status and code. Returns its detail.
    pub(crate) async fn denied(
        &self,
        path: &str,
        body: impl ToString,
        (status, code): (u16, &str),
    ) -> String {
        let found = self.fails(path, body).await;
        assert_eq!((found.0, &*found.1), (status, code), "{path}: {found:?}");
        found.2
    }

    /// Sends a request to the API.
    pub(crate) async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Said {
        self.send(method, &format!("/api/v1/{path}"), body).await
    }

    /// Sends a request to a page of its own, whose limits no other call has used.
    pub(crate) async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Said {
        send(&self.router(), request(method, path, body)).await
    }
}

/// Sends a request to a page.
pub(crate) async fn send(router: &Router, request: Request<Body>) -> Said {
    let response = router.clone().oneshot(request).await;
    let (head, body) = response.expect("a response").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Said {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8(body.to_vec()).expect("text"),
    }
}

/// Returns the samples of a page.
pub(crate) async fn samples(router: &Router, query: &str) -> Vec<Value> {
    let path = format!("/api/v1/samples{query}");
    let said = send(router, request(Method::GET, &path, "")).await;
    assert_eq!(
        (said.status.as_u16(), said.kind()),
        (200, "application/json")
    );
    serde_json::from_str(&said.text).expect("a list")
}

/// Returns parts of a value: `"a b.0"` for `[value["a"], value["b"][0]]`.
pub(crate) fn parts(value: &Value, names: &str) -> Value {
    let part = |name: &str| {
        let pointer = format!("/{}", name.replace('.', "/"));
        value.pointer(&pointer).cloned()
    };
    let all = names.split(' ').map(|name| part(name).unwrap_or_default());
    all.collect()
}

/// A request as the page sends it.
pub(crate) fn request(method: Method, path: &str, body: impl Into<Body>) -> Request<Body> {
    let peer: SocketAddr = "127.0.0.1:50000".parse().expect("an address");
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-tower-throttle", "1")
        .extension(ConnectInfo(peer))
        .body(body.into())
        .expect("a request")
}

impl Said {
    pub(crate) fn kind(&self) -> &str {
        let kind = self.headers.get("content-type").expect("a type");
        kind.to_str().expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }
}
