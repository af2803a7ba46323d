//! Buckets in this process: tower-throttle and tower_governor.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    extract::{ConnectInfo, Request},
    http::StatusCode,
    response::Response,
};
use tower::{Layer, Service, service_fn};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
use tower_throttle::{Policy, RateLimitLayer, TokenBucket};

use crate::measure::{self, Measured, Row, in_turns};

/// One operation in so many is timed by itself: reading the clock costs, too.
/// It shares no factor with the number of callers, so each has its turn.
const TIMED: usize = 17;

/// What callers do, and what they are answered.
#[derive(Clone, Copy)]
struct Work {
    name: &'static str,
    callers: usize,
    status: StatusCode,
}

const WORKS: [Work; 3] = [
    Work {
        name: "100,000 callers, allowed",
        callers: 100_000,
        status: StatusCode::OK,
    },
    Work {
        name: "one caller, allowed",
        callers: 1,
        status: StatusCode::OK,
    },
    Work {
        name: "one caller, denied",
        callers: 1,
        status: StatusCode::TOO_MANY_REQUESTS,
    },
];

pub(crate) fn run(print: impl Fn(Row)) {
    for work in WORKS {
        let is_denied = work.status == StatusCode::TOO_MANY_REQUESTS;
        let quota = if is_denied {
            TokenBucket::per_hour(1)
        } else {
            TokenBucket::per_second(1_000_000).burst(1_000_000_000)
        };
        let our_layer = RateLimitLayer::new(Policy::new("api", quota));
        let (period, burst) = if is_denied {
            (Duration::from_secs(3_600), 1)
        } else {
            (Duration::from_micros(1), 1_000_000_000)
        };
        let config = GovernorConfigBuilder::default()
            .period(period)
            .burst_size(burst)
            .use_headers()
            .finish()
            .expect("a period and a burst");

        let ours = our_layer.layer(service_fn(answer));
        let rival = GovernorLayer::new(config).layer(service_fn(answer));
        let callers: Vec<_> = (0..work.callers).map(address).collect();
        // From here on each caller has a bucket, and a caller to be denied an empty one.
        for caller in &callers {
            call(&ours, *caller);
            call(&rival, *caller);
        }
        for threads in [1, 2] {
            let [ours, rival] =
                in_turns([&|| round(&ours, &callers, work.status, threads), &|| {
                    round(&rival, &callers, work.status, threads)
                }]);
            let plural = if threads == 1 { "" } else { "s" };
            print(Row {
                work: format!("memory: {}, {threads} thread{plural}", work.name),
                ours,
                rival_name: "tower_governor",
                rival,
            });
        }
    }
}

fn answer(_: Request) -> Ready<Result<Response, Infallible>> {
    ready(Ok(Response::default()))
}

fn address(number: usize) -> SocketAddr {
    let number = u32::try_from(number).expect("an IPv4 address");
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    SocketAddr::from((Ipv4Addr::from(first + number), 50_000))
}

/// One request, as a server would send it. Nothing here ever waits.
fn call<S, B>(service: &S, caller: SocketAddr) -> Response
where
    S: Service<Request, Response = Response<B>, Error = Infallible> + Clone,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(caller));
    let mut service = service.clone();
    assert!(service.poll_ready(&mut context).is_ready(), "it is ready");
    match pin!(service.call(request)).poll(&mut context) {
        Poll::Ready(Ok(response)) => response.map(Body::new),
        Poll::Pending => panic!("a limiter in memory answers at once"),
    }
}

fn round<S, B>(service: &S, callers: &[SocketAddr], status: StatusCode, threads: usize) -> Measured
where
    S: Service<Request, Response = Response<B>, Error = Infallible> + Clone + Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (service, start, stop) = (service.clone(), &start, &stop);
                scope.spawn(move || {
                    let mut times = Vec::with_capacity(1 << 20);
                    let mut operations = 0;
                    // Threads go through the callers a part of the way apart,
                    // each in an order that caches do not foresee.
                    let mut at = thread * callers.len() / threads;
                    start.wait();
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        for n in 0..TIMED {
                            let response = call(&service, callers[at]);
                            assert_eq!(response.status(), status);
                            drop(response);
                            if n == 0 {
                                times.push(started.elapsed());
                            }
                            at = (at + 7_919) % callers.len();
                        }
                        operations += TIMED as u64;
                    }
                    (operations, times)
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        thread::sleep(measure::ROUND);
        stop.store(true, Ordering::Relaxed);
        let took = started.elapsed();
        let (mut operations, mut times) = (0, Vec::new());
        for worker in workers {
            let done = worker.join().expect("a worker");
            operations += done.0;
            times.extend(done.1);
        }
        Measured::new(operations, took, times)
    })
}
