//! Requests to a layer of a file and to one of code, and what comes back, byte for byte.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    response::Response,
    routing::any,
};
use http::{HeaderMap, Version};
use tower::ServiceExt;

use crate::{Config, Readers, builders::Builders};
use tower_throttle::{
    Decision, Denied, Key, ManualClock, MemoryStore, MemoryStoreBuilder, Outcome, RateLimitLayer,
    RateLimitLayerBuilder, RequestHead, Settle, StoreError,
    key::{self, PeerAddr},
    metrics::{Observe, Observed},
    store::{Answer, Charge, Check, Store},
};

/// What both layers share.
pub(super) struct World {
    clock: Arc<ManualClock>,
    pub(super) observed: Arc<Counter>,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Observe for Counter {
    fn decided(&self, _: &Observed<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A store that always fails.
#[derive(Debug)]
pub(super) struct Broken;

impl Store for Broken {
    fn check(&self, _: &Check<'_>) -> Answer<Decision> {
        Answer::Now(Err(StoreError::unavailable("on purpose")))
    }

    fn reset(&self, _: &[Charge<'_>]) -> Answer<()> {
        Answer::Now(Err(StoreError::unavailable("on purpose")))
    }
}

pub(super) fn text<'a>(head: &RequestHead<'a>, name: &str) -> Option<&'a str> {
    head.headers().get(name)?.to_str().ok()
}

pub(super) fn tenant(head: &RequestHead<'_>) -> Option<Key> {
    text(head, "x-tenant").map(Key::from)
}

pub(super) fn number(head: &RequestHead<'_>) -> Option<Key> {
    text(head, "x-size").map(|size| Key::from(u64::from(size.as_bytes()[0])))
}

pub(super) fn paying(head: &RequestHead<'_>) -> bool {
    head.headers().contains_key("x-paying")
}

pub(super) fn size(head: &RequestHead<'_>) -> u64 {
    let size = text(head, "x-size");
    size.and_then(|size| size.parse().ok()).unwrap_or(1)
}

pub(super) fn half(outcome: &Outcome<'_>) -> Settle {
    Settle::Units(outcome.held() / 2)
}

pub(super) fn page(denied: Denied<'_>) -> http::Response<&'static str> {
    let mut response = http::Response::new("no");
    *response.status_mut() = denied.status();
    response
}

pub(super) fn user(head: &RequestHead<'_>) -> Option<String> {
    text(head, "x-api-key").map(|key| format!("user {key}"))
}

pub(super) fn not_found(status: http::StatusCode, _: &HeaderMap) -> bool {
    status == http::StatusCode::NOT_FOUND
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            clock: Arc::new(ManualClock::new()),
            observed: Arc::default(),
        }
    }

    pub(super) fn readers(&self) -> Readers {
        Readers::new()
            .key("tenant", tenant)
            .key("number", number)
            .quota("plan", |head| text(head, "x-plan"))
            .when("paying", paying)
            .cost("size", size)
            .settle("half", half)
            .on_denied("page", page)
            .observe("counter", Arc::clone(&self.observed))
            .name_offenders("user", user)
            .headers_when("not_found", not_found)
            .client_address("proxied", key::client_ip(["10.0.0.0/8"]))
            .store("broken", Broken)
            .store("small", self.store().capacity(1).build())
            .clock("manual", Arc::clone(&self.clock))
    }

    /// Builds the first layer of a file. Its store is in memory, unless the file names another.
    pub(super) fn layer_of_file(&self, file: &str) -> RateLimitLayer {
        let store = match file.contains("store = {") {
            true => "",
            false => "store = { memory = true, clock = \"manual\" }\n",
        };
        let builders = self.builders(&format!("{store}{file}"));
        let store = builders.store.open().expect("a store").store;
        let (_, builder) = builders.layers.into_iter().next().expect("a layer");
        builder.store(store).build().expect("a layer")
    }

    pub(super) fn builders(&self, file: &str) -> Builders {
        let config = Config::from_toml(&format!("version = 1\n{file}"));
        let config = config.unwrap_or_else(|errors| panic!("{file}\n{errors}"));
        let builders = Builders::read(&config.readers(self.readers()));
        builders.unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn store(&self) -> MemoryStoreBuilder {
        MemoryStore::builder().clock(Arc::clone(&self.clock))
    }

    pub(super) fn layer_of_code(&self, builder: RateLimitLayerBuilder) -> RateLimitLayer {
        let builder = builder.store(self.store().build());
        builder.build().expect("a layer")
    }

    /// Sends requests, and returns all that comes back.
    ///
    /// They are separated by `;`. Each is a method, a target, and then header fields (`a=b`), `h2`,
    /// or the address of the peer. `wait 5` moves the clock.
    pub(super) fn talk(&self, layer: &RateLimitLayer, requests: &str) -> String {
        let app = Router::new()
            .route("/users/{id}", any(handle))
            .fallback(handle)
            .layer(layer.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        runtime.expect("a runtime").block_on(async {
            let started = tokio::time::Instant::now();
            let mut lines = Vec::new();
            for request in requests.split(';') {
                let words: Vec<_> = request.split_whitespace().collect();
                if let ["wait", seconds] = words[..] {
                    let seconds = seconds.parse().expect("a number");
                    self.clock.advance(Duration::from_secs(seconds));
                    continue;
                }
                let response = app.clone().oneshot(request_of(&words)).await;
                lines.push(shown(response.expect("a response")).await);
            }
            let top = layer.top_denied(9).offenders.into_iter();
            let names: Vec<_> = top.map(|offender| offender.name).collect();
            lines.push(format!(
                "{} {} {names:?} {:?}",
                layer.metrics().limiter(),
                self.observed.0.load(Ordering::Relaxed),
                started.elapsed()
            ));
            lines.join("\n\n")
        })
    }
}

fn request_of(words: &[&str]) -> Request {
    let [method, target, rest @ ..] = words else {
        panic!("no request: {words:?}");
    };
    let mut peer: IpAddr = [203, 0, 113, 7].into();
    let mut request = Request::builder().method(*method).uri(*target);
    for word in rest {
        request = match (word.split_once('='), word.parse()) {
            (Some((name, value)), _) => request.header(name, value.replace('~', " ")),
            (None, Ok(address)) => {
                peer = address;
                request
            }
            (None, Err(_)) => request.version(Version::HTTP_2),
        };
    }
    let request = request.extension(PeerAddr(SocketAddr::new(peer, 4711)));
    request.body(Body::empty()).expect("a request")
}

/// Answers with the status of the field `respond`, and the requested text.
async fn handle(request: Request) -> Response {
    let field = |name: &str| request.headers().get(name).cloned();
    let status = field("respond").map_or(200, |status| {
        status.to_str().expect("a text").parse().expect("a status")
    });
    let decided = request.extensions().get::<Decision>().is_some();
    let mut response = Response::builder().status(status);
    response = response.header("x-decided", decided.to_string());
    if let Some(cost) = field("x-cost") {
        response = response.header("x-cost", cost);
    }
    response.body(Body::from("hello")).expect("a response")
}

async fn shown(response: Response) -> String {
    let (head, body) = response.into_parts();
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| format!("{name}: {value:?}"));
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    let body = to_bytes(body, 65_536).await.expect("a body");
    format!("{}\n{}\n{:?}", head.status, fields.join("\n"), body)
}
