//! A clock that follows tokio's, pseudo-random numbers, and what the layer's tests share.

#![allow(unreachable_pub)]

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::Full;
use tokio::{sync::mpsc, time::Instant};
use tower::Service;
use tower_throttle::{Clock, Limiter, MemoryStore, Policy, store::Store};

/// The time of tokio, so that pausing it pauses the store too.
#[derive(Debug)]
pub struct TokioClock(Instant);

/// When tokio's time starts, to the millisecond: no window ends there.
pub const START_US: u64 = 1_767_225_600_000_000 + 7_000;

impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        START_US + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

pub fn paused_store() -> MemoryStore {
    let clock = Arc::new(TokioClock(Instant::now()));
    MemoryStore::builder().clock(clock).build()
}

pub fn limiter<const N: usize>(store: &(impl Store + Clone), policies: [Policy; N]) -> Limiter {
    let builder = Limiter::builder().store(store.clone());
    let builder = policies
        .into_iter()
        .fold(builder, |all, one| all.policy(one));
    builder.build().unwrap()
}

pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub fn whole_ms(duration: Duration) -> u64 {
    assert_eq!(duration.as_nanos() % 1_000_000, 0, "{duration:?}");
    u64::try_from(duration.as_millis()).unwrap()
}

/// xorshift64*. The seed is printed: set `SEED` to run the same again.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let seed = match std::env::var("SEED") {
            Ok(seed) => seed.parse().expect("a number"),
            Err(_) => RandomState::new().hash_one(0_u8) | 1,
        };
        println!("SEED={seed}");
        Self(seed)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % end
    }
}

pub fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context)
}

/// Units of the only policy that are not taken.
pub async fn left(limiter: &Limiter, key: &'static str) -> u64 {
    let decision = limiter.peek(key).await.unwrap();
    decision.policies().next().unwrap().remaining()
}

pub type Request_ = Request<Full<Bytes>>;

/// The frames of a body as they are sent; it ends when the sender is dropped.
pub struct Channel {
    frames: mpsc::UnboundedReceiver<Result<&'static str, &'static str>>,
    ready: VecDeque<&'static str>,
}

pub type Frames = mpsc::UnboundedSender<Result<&'static str, &'static str>>;

pub fn channel() -> (Frames, Channel) {
    let (sender, frames) = mpsc::unbounded_channel();
    let ready = VecDeque::new();
    (sender, Channel { frames, ready })
}

impl Channel {
    /// A body that is there from the start, and ends.
    pub fn of(parts: &[&'static str]) -> Self {
        let (_, mut body) = channel();
        body.ready.extend(parts);
        body
    }
}

impl Body for Channel {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let frame = |part: &'static str| Frame::data(Bytes::from(part));
        if let Some(part) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(frame(part))));
        }
        let part = self.frames.poll_recv(cx);
        part.map(|part| part.map(|part| part.map(frame)))
    }
}

/// An inner service that answers once, with this body.
pub fn answering(
    body: Channel,
) -> impl Service<
    Request_,
    Response = Response<Channel>,
    Error = Infallible,
    Future = Ready<Result<Response<Channel>, Infallible>>,
> + Clone {
    let body = Arc::new(Mutex::new(Some(body)));
    tower::service_fn(move |_: Request_| {
        let body = body.lock().unwrap().take().unwrap();
        ready(Ok(Response::new(body)))
    })
}

/// Says hello, and when it was called.
pub async fn hello_at(
    calls: mpsc::UnboundedSender<Instant>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    calls.send(Instant::now()).unwrap();
    Ok(Response::new(Full::from("hello")))
}

pub fn statuses(responses: &[StatusCode], status: StatusCode) -> usize {
    responses.iter().filter(|one| **one == status).count()
}
