//! An operator who calls the API of the admin page.

use axum::Router;
use serde_json::{Value, json};
use tower_throttle_admin::{Access, Admin, Who};

use crate::asked::{Answer, Asked, get, post};
use crate::support::prelude::*;

/// An operator called ann.
pub(crate) struct Operator {
    router: Router,
    clock: Arc<ManualClock>,
}

impl Operator {
    /// Returns one who may change things.
    pub(crate) fn new(admin: Admin) -> Self {
        Self::of(admin.allow_changes())
    }

    pub(crate) fn of(admin: Admin) -> Self {
        let clock = Arc::new(ManualClock::new());
        let access = Access::check(|_| Some(Who::new("ann")));
        let router = admin.clock(clock.clone()).access(access).into_router();
        Self { router, clock }
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Sends a request when the calls before it count no more.
    async fn send(&self, asked: Asked) -> Answer {
        self.clock.advance(Duration::from_secs(6));
        asked.send(&self.router).await
    }

    /// Asks for a path of the API.
    pub(crate) async fn read(&self, path: &str) -> Answer {
        self.send(get(&format!("/api/v1/{path}"))).await
    }

    /// Sends a body to a path of the API.
    pub(crate) async fn call(&self, path: &str, body: impl ToString) -> Answer {
        self.send(post(&format!("/api/v1/{path}"), body)).await
    }

    /// Asks for a path of the API, and expects success.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.read(path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// Sends a body, and expects success.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.call(path, &body).await;
        assert_eq!(answer.status, 200, "{path} {body}: {answer:?}");
        answer.json()
    }

    /// Looks a caller up, in all policies.
    pub(crate) async fn look_up(&self, caller: impl Into<Value>) -> Value {
        let body = json!({ "caller": caller.into() });
        self.post("lookup", body).await
    }

    /// Sends a body, and expects a problem of this status and code. Returns its detail.
    pub(crate) async fn denied(
        &self,
        path: &str,
        body: impl ToString,
        (status, code): (u16, &str),
    ) -> String {
        let answer = self.call(path, body).await;
        answer.assert_is(status, code);
        answer.json()["detail"].as_str().expect("a text").to_owned()
    }
}

/// Returns the samples of a page.
pub(crate) async fn samples(router: &Router, query: &str) -> Vec<Value> {
    let answer = get(&format!("/api/v1/samples{query}")).send(router).await;
    assert_eq!(answer.field("content-type"), "application/json");
    serde_json::from_str(&answer.body).expect("a list")
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

/// Returns parts of each value of a list.
pub(crate) fn each(list: &Value, names: &str) -> Vec<Value> {
    let list = list.as_array().expect("a list").iter();
    list.map(|one| parts(one, names)).collect()
}

/// Asserts the parts of a value, or those of each value of a list.
#[track_caller]
pub(crate) fn assert_parts(value: &Value, names: &str, expected: &Value) {
    let found = match value.is_array() {
        true => each(value, names).into(),
        false => parts(value, names),
    };
    assert_eq!(&found, expected, "{value:#}");
}
