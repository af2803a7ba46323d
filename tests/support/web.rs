//! What the tests of the web half share: a clock that a test sets, requests with costs, whole
//! answers, and stores that fail or are slow.

use std::{
    convert::Infallible,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service};
use tower_throttle::{
    Decision, DenialReason, FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer,
    RateLimitLayerBuilder, RequestHead, StoreError, TokenBucket,
    store::{Answer as StoreAnswer, Charge, Check, Store},
};

/// The time in these tests: that of the standards page's examples.
pub const NOW_S: u64 = 1_795_242_000;

/// A store whose clock is at [`NOW_S`].
pub fn standing_store() -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at_us(NOW_S * 1_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (store, clock)
}

/// The page's `api`: a token bucket of 100 in 60 seconds, for all callers together. The header
/// `api` of a request holds its cost.
pub fn api() -> Policy {
    Policy::new("api", TokenBucket::per_minute(100))
        .shared()
        .cost_by(cost_in("api"))
}

/// The page's `day`: a fixed window of 5000 in 86400 seconds; the header `day`.
pub fn day() -> Policy {
    Policy::new("day", FixedWindow::per_day(5_000))
        .shared()
        .cost_by(cost_in("day"))
}

/// Reads the cost from a header; 1 where there is none.
pub fn cost_in(header: &'static str) -> impl Fn(&RequestHead<'_>) -> u64 + Send + Sync + 'static {
    move |head| {
        let text = head.headers().get(header);
        let text = text.and_then(|text| text.to_str().ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(1)
    }
}

/// A layer on a store of its own, at [`NOW_S`].
pub fn layer_of(policies: impl IntoIterator<Item = Policy>) -> (RateLimitLayer, Arc<ManualClock>) {
    layer_with(policies, |builder| builder)
}

/// A layer of one policy on a store.
pub fn layer_on(store: impl Store, policy: impl Into<Policy>) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().store(store).policy(policy);
    builder.decision_in_extensions().build().expect("a layer")
}

/// The same with other settings.
pub fn layer_with(
    policies: impl IntoIterator<Item = Policy>,
    set: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> (RateLimitLayer, Arc<ManualClock>) {
    let (store, clock) = standing_store();
    let builder = RateLimitLayer::builder().store(store);
    let builder = builder.decision_in_extensions();
    let builder = policies
        .into_iter()
        .fold(builder, RateLimitLayerBuilder::policy);
    (set(builder).build().expect("a layer"), clock)
}

/// A GET with these header fields.
pub fn get<V: ToString, const N: usize>(fields: [(&str, V); N]) -> Request<Full<Bytes>> {
    request(Method::GET, fields)
}

/// A GET with no header fields.
pub fn plain() -> Request<Full<Bytes>> {
    get::<String, 0>([])
}

pub fn request<V: ToString, const N: usize>(
    method: Method,
    fields: [(&str, V); N],
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri("/");
    for (name, value) in fields {
        request = request.header(name, value.to_string());
    }
    request.body(Full::default()).expect("a request")
}

/// The request as a gRPC client would send it: `POST`, over HTTP/2.
pub fn as_grpc<B>(mut request: Request<B>) -> Request<B> {
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    let kind = HeaderValue::from_static("application/grpc");
    request.headers_mut().insert("content-type", kind);
    request
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
    pub decision: Option<Decision>,
    pub reason: Option<DenialReason>,
}

impl Answer {
    /// All lines of a field, joined as HTTP allows.
    pub fn field(&self, name: &str) -> Option<String> {
        joined(&self.headers, name)
    }

    /// A field that must be one integer.
    #[track_caller]
    pub fn number(&self, name: &str) -> u64 {
        let text = self.field(name).unwrap_or_else(|| panic!("no {name}"));
        assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
        text.parse().expect("a number")
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The sorted names of all fields.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Compares everything with an example as a standard prints it: status
    /// line, all fields and no others in any order, an empty line, the body.
    #[track_caller]
    pub fn assert_is(&self, example: &str) {
        let (head, body) = example.split_once("\n\n").unwrap_or((example, ""));
        let mut lines = head.lines();
        let status = format!("HTTP/1.1 {}", self.status);
        assert_eq!(status, lines.next().expect("a status line"));
        let wanted = lines.map(|line| {
            let (name, value) = line.split_once(": ").expect("a field");
            format!("{}: {value}", name.to_ascii_lowercase())
        });
        let found = self.headers.iter().map(|(name, value)| {
            let value = value.to_str().expect("ASCII");
            format!("{name}: {value}")
        });
        let (mut wanted, mut found): (Vec<_>, Vec<_>) = (wanted.collect(), found.collect());
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted);
        assert_eq!(self.text(), body);
        assert_eq!(self.trailers, None);
    }
}

pub fn joined(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(name).iter();
    let lines: Vec<_> = lines.map(|value| value.to_str().expect("ASCII")).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Sends a request through the layer to a service that says hello.
#[track_caller]
pub fn ask(layer: &RateLimitLayer, request: Request<Full<Bytes>>) -> Answer {
    ask_service(layer.layer(tower::service_fn(hello)), request)
}

/// Answers hello, as every inner service here does.
pub async fn hello<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

/// Sends a request through a service that is ready and answers at once.
#[track_caller]
pub fn ask_service<S, Q, B>(mut service: S, request: Request<Q>) -> Answer
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: std::fmt::Debug,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    at_once(std::future::poll_fn(|cx| service.poll_ready(cx))).expect("a ready service");
    let response = at_once(service.call(request)).expect("a response");
    read(response)
}

/// Reads a response that is there in full.
#[track_caller]
pub fn read<B>(response: Response<B>) -> Answer
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let (parts, body) = response.into_parts();
    let body = at_once(body.collect()).expect("a body");
    let trailers = body.trailers().cloned();
    Answer {
        status: parts.status,
        decision: parts.extensions.get().cloned(),
        reason: parts.extensions.get().copied(),
        headers: parts.headers,
        body: body.to_bytes(),
        trailers,
    }
}

/// Returns the output of a future that never waits.
#[track_caller]
pub fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// A store that can never decide.
#[derive(Clone, Debug)]
pub struct Down;

/// Text in the error of [`Down`], which clients must not see.
pub const DOWN_BECAUSE: &str = "no route to redis-7.internal:6379";

impl Store for Down {
    fn check(&self, _: &Check<'_>) -> StoreAnswer<Decision> {
        StoreAnswer::Now(Err(StoreError::unavailable(DOWN_BECAUSE)))
    }

    fn reset(&self, _: &[Charge<'_>]) -> StoreAnswer<()> {
        StoreAnswer::Now(Err(StoreError::unavailable(DOWN_BECAUSE)))
    }
}

/// A store that answers later: each answer takes one permit.
#[derive(Clone, Debug)]
pub struct Slow<S> {
    pub store: S,
    pub gate: Arc<tokio::sync::Semaphore>,
}

impl<S: Store> Slow<S> {
    /// Creates a store whose answers wait for permits of the gate.
    pub fn new(store: S) -> Self {
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        Self { store, gate }
    }

    fn later<T: Send + 'static>(&self, answer: StoreAnswer<T>) -> StoreAnswer<T> {
        let gate = Arc::clone(&self.gate);
        let wait = async move { gate.acquire().await.expect("an open gate").forget() };
        super::limiters::later(answer, wait)
    }
}

impl<S: Store> Store for Slow<S> {
    fn check(&self, check: &Check<'_>) -> StoreAnswer<Decision> {
        self.later(self.store.check(check))
    }

    fn reset(&self, charges: &[Charge<'_>]) -> StoreAnswer<()> {
        self.later(self.store.reset(charges))
    }
}
