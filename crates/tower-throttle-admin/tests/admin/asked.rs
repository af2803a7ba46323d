//! Requests to a page, and what it answers.

use std::net::SocketAddr;

use axum::{Router, body::Body, extract::ConnectInfo};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::support::prelude::*;

/// A request, as a program on this machine sends it.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) version: http::Version,
}

pub(crate) fn ask(method: Method, target: &str) -> Asked {
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

pub(crate) fn get(target: &str) -> Asked {
    ask(Method::GET, target)
}

/// A request of the API with a body.
#[expect(clippy::needless_pass_by_value, reason = "a call is shorter")]
pub(crate) fn post(target: &str, body: impl ToString) -> Asked {
    let mut asked = ask(Method::POST, target)
        .with("content-type", "application/json")
        .with("x-tower-throttle", "1");
    asked.body = body.to_string().into();
    asked
}

/// A form of the page, as a browser sends it.
pub(crate) fn form(target: &str, body: impl ToString) -> Asked {
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
    pub(crate) fn with(self, name: &'static str, value: &str) -> Self {
        self.without(name).and(name, value.as_bytes())
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(found, _)| found != name);
        self
    }

    /// Adds a field, beside others of its name.
    pub(crate) fn and(mut self, name: &'static str, value: &[u8]) -> Self {
        let value = HeaderValue::from_bytes(value).expect("a value");
        self.fields.push((HeaderName::from_static(name), value));
        self
    }

    pub(crate) fn peer(mut self, address: &str) -> Self {
        self.peer = Some(address.parse().expect("an address"));
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub(crate) async fn send(&self, router: &Router) -> Answer {
        Answer::read(router.clone().oneshot(self.request()).await).await
    }

    pub(crate) fn request(&self) -> Request<Body> {
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
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) async fn read<E: std::fmt::Debug>(response: Result<Response<Body>, E>) -> Self {
        let (parts, body) = response.expect("a response").into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Self {
            status: parts.status,
            fields: parts.headers,
            body: String::from_utf8(body.into()).expect("a text"),
        }
    }

    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> String {
        let field = crate::support::web::joined(&self.fields, name);
        field.unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The code of a problem document, and nothing if it is none.
    pub(crate) fn code(&self) -> String {
        let kind = self.fields.get("content-type");
        if kind.is_none_or(|kind| kind != "application/problem+json") {
            return String::new();
        }
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        document["code"].as_str().expect("a code").to_owned()
    }

    #[track_caller]
    pub(crate) fn assert_is(&self, status: u16, code: &str) {
        let found = (self.status.as_u16(), &*self.code());
        assert_eq!(found, (status, code), "{self:?}");
    }

    #[track_caller]
    pub(crate) fn assert_done(&self) {
        assert!(self.status.is_success(), "{self:?}");
    }
}
