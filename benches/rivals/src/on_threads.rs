//! Rounds of limiters in this process, which never wait.

use std::{
    convert::Infallible,
    net::SocketAddr,
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
    response::Response,
};
use tower::Service;

use crate::{callers::Callers, measured::Measured};

/// One of this many operations is timed by itself, because reading the clock costs, too. It
/// shares no factor with the number of callers, so each has its turn.
const TIMED: usize = 17;

/// Lets threads make requests of one caller after another as fast as they can.
pub fn round(
    length: Duration,
    threads: usize,
    callers: &Callers,
    ask: impl Fn(usize) + Clone + Send,
) -> Measured {
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (ask, start, stop) = (ask.clone(), &start, &stop);
                scope.spawn(move || {
                    let mut times = Vec::with_capacity(1 << 20);
                    let mut operations = 0;
                    let mut at = callers.first(thread, threads);
                    start.wait();
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        for n in 0..TIMED {
                            ask(at);
                            if n == 0 {
                                times.push(started.elapsed());
                            }
                            at = callers.next(at);
                        }
                        operations += TIMED as u64;
                    }
                    (operations, times)
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let took = started.elapsed();
        let (mut operations, mut times) = (0, Vec::new());
        for worker in workers {
            let done = worker.join().expect("a worker");
            operations += done.0;
            times.extend(done.1);
        }
        Measured::of_some(operations, took, times)
    })
}

/// Makes one request, as a server would.
pub fn call<S, B>(service: &S, caller: SocketAddr) -> Response
where
    S: Service<Request, Response = Response<B>, Error = Infallible> + Clone,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(caller));
    let mut service = service.clone();
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready(), "it is ready");
    let Ok(response) = at_once(service.call(request));
    response.map(Body::new)
}

/// Returns what a limiter in memory answers.
pub fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a limiter in memory answers at once"),
    }
}
