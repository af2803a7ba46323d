//! The frame of the admin page: who gets in, and what no other can do. `docs/admin-security.md` lists
//! the attacks with these tests.

mod attacks;
mod authority;
mod bearer;
mod bodies;
mod calls;
mod check;
mod guesses;
mod hosts;
mod loopback;
mod origins;
mod random;
mod responses;
mod secrets;
mod server;
mod texts;

use std::net::SocketAddr;

use axum::{Router, body::Body, extract::ConnectInfo};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower_throttle_admin::{Access, Admin};

use crate::support::prelude::*;

const SECRET: &str = "correct-horse-battery-staple";
/// A change, and its body.
const RESET: &str = "/admin/api/v1/reset";
const ANN: &str = r#"{"caller":"ann"}"#;
const STATUS: &str = "/admin/api/v1/status";
/// All changes.
const CHANGES: [&str; 7] = [
    "reset",
    "ban",
    "unban",
    "override",
    "clear-override",
    "mode",
    "clear-mode",
];

/// An admin page at `/admin`, of a limiter that denies `ann`.
struct App {
    router: Router,
    limiter: Limiter,
    clock: Arc<ManualClock>,
}

impl App {
    fn new(access: Access) -> Self {
        Self::with(access, Admin::allow_changes)
    }

    fn with(access: Access, set: impl FnOnce(Admin<Access>) -> Admin<Access>) -> Self {
        let once = Policy::new("once", FixedWindow::per_day(1));
        let limiter = Limiter::new(MemoryStore::new(), once);
        assert!(limiter.check_now("ann").expect("an answer").is_allowed());
        let clock = Arc::new(ManualClock::new());
        let admin = Admin::new(&limiter).access(access).clock(clock.clone());
        let router = Router::new().nest("/admin", set(admin).into_router());
        Self {
            router,
            limiter,
            clock,
        }
    }

    fn loopback() -> Self {
        Self::new(Access::loopback_with_changes())
    }

    fn bearer() -> Self {
        Self::new(Access::bearer(SECRET).expect("a secret"))
    }

    async fn ask(&self, asked: &Asked) -> Answer {
        asked.send(&self.router).await
    }

    /// Logs in, and returns the cookie.
    async fn log_in(&self) -> String {
        let login = post("/admin/session", &format!(r#"{{"token":"{SECRET}"}}"#));
        let answer = self.ask(&login).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
        let cookie = answer.field("set-cookie");
        cookie.split(';').next().expect("a cookie").to_owned()
    }

    /// Returns whether somebody has reset `ann`.
    fn was_reset(&self) -> bool {
        let decision = self.limiter.check_now("ann").expect("an answer");
        decision.is_allowed()
    }
}

/// A request, as a program on this machine sends it.
#[derive(Clone)]
struct Asked {
    method: Method,
    target: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    peer: Option<SocketAddr>,
    version: http::Version,
}

fn ask(method: Method, target: &str) -> Asked {
    Asked {
        method,
        target: target.to_owned(),
        fields: Vec::new(),
        body: Bytes::new(),
        peer: Some(([127, 0, 0, 1], 4711).into()),
        version: http::Version::HTTP_11,
    }
    .with("host", "localhost:3000")
}

fn get(target: &str) -> Asked {
    ask(Method::GET, target)
}

/// A request of the API with a body.
fn post(target: &str, body: &str) -> Asked {
    let mut asked = ask(Method::POST, target)
        .with("content-type", "application/json")
        .with("x-tower-throttle", "1");
    asked.body = Bytes::copy_from_slice(body.as_bytes());
    asked
}

/// A form of the page, as a browser sends it.
fn form(target: &str, body: &str) -> Asked {
    post(target, body)
        .without("x-tower-throttle")
        .with("content-type", "application/x-www-form-urlencoded")
        .with("origin", "null")
        .with("sec-fetch-site", "same-origin")
        .with("sec-fetch-mode", "navigate")
        .with("sec-fetch-dest", "document")
}

impl Asked {
    /// Sets a field.
    fn with(self, name: &'static str, value: &str) -> Self {
        self.without(name).and(name, value.as_bytes())
    }

    fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(found, _)| found != name);
        self
    }

    /// Adds a field, beside others of its name.
    fn and(mut self, name: &'static str, value: &[u8]) -> Self {
        let value = HeaderValue::from_bytes(value).expect("a value");
        self.fields.push((HeaderName::from_static(name), value));
        self
    }

    fn peer(mut self, address: &str) -> Self {
        self.peer = Some(address.parse().expect("an address"));
        self
    }

    fn bearer(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    async fn send(&self, router: &Router) -> Answer {
        Answer::read(router.clone().oneshot(self.request()).await).await
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.target)
            .version(self.version);
        for (name, value) in &self.fields {
            request = request.header(name, value);
        }
        if let Some(peer) = self.peer {
            request = request.extension(ConnectInfo(peer));
        }
        let body = Body::from(self.body.clone());
        request.body(body).expect("a request")
    }
}

#[derive(Debug)]
struct Answer {
    status: StatusCode,
    fields: http::HeaderMap,
    body: String,
}

impl Answer {
    async fn read<E: std::fmt::Debug>(response: Result<Response<Body>, E>) -> Self {
        let (parts, body) = response.expect("a response").into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Self {
            status: parts.status,
            fields: parts.headers,
            body: String::from_utf8(body.into()).expect("a text"),
        }
    }

    #[track_caller]
    fn field(&self, name: &str) -> String {
        crate::support::web::joined(&self.fields, name)
            .unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    /// The code of a problem document, and nothing if it is none.
    fn code(&self) -> String {
        let kind = self.fields.get("content-type");
        if kind.is_none_or(|kind| kind != "application/problem+json") {
            return String::new();
        }
        let document: Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(document["status"], self.status.as_u16());
        document["code"].as_str().expect("a code").to_owned()
    }

    #[track_caller]
    fn assert_is(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status.as_u16(), &*self.code()),
            (status, code),
            "{self:?}"
        );
    }

    #[track_caller]
    fn assert_done(&self) {
        assert!(self.status.is_success(), "{self:?}");
    }
}
