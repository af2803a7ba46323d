//! When the inner service is polled and called, and with what errors.

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Ready, poll_fn, ready},
    panic::AssertUnwindSafe,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service};
use tower_test::mock;
use tower_throttle::{Decision, RateLimitLayer};

use crate::support::web::{
    Slow, api, ask, at_once, get, hello, layer_of, layer_on, plain, read, standing_store,
};

/// Returns the layer on a store that answers at once, and on one that answers later.
fn now_and_later() -> [RateLimitLayer; 2] {
    let later = || {
        let slow = Slow::new(standing_store().0);
        slow.gate.add_permits(1_000);
        layer_on(slow, api())
    };
    [layer_of([api()]).0, later()]
}

/// A service that counts calls in `call` itself, before its future is polled.
#[derive(Clone, Default)]
struct Eager {
    calls: Rc<Cell<u32>>,
}

impl<B> Service<Request<B>> for Eager {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        self.calls.set(self.calls.get() + 1);
        ready(Ok(Response::new(Full::from("hello"))))
    }
}

#[test]
fn nothing_is_called_on_a_denial() {
    for layer in now_and_later() {
        let inner = Eager::default();
        let calls = Rc::clone(&inner.calls);
        let mut service = layer.layer(inner);
        let mut statuses = Vec::new();
        for cost in [60, 60, 250, 40, 1] {
            let answer = read(at_once(service.call(get([("api", cost)]))).unwrap());
            statuses.push((answer.status.as_u16(), calls.get()));
        }
        assert_eq!(statuses, [(200, 1), (429, 1), (403, 1), (200, 2), (429, 2)]);
    }
}

#[test]
fn the_inner_service_is_called_at_once_where_the_store_answers_at_once() {
    let [layer, _] = now_and_later();
    let inner = Eager::default();
    let calls = Rc::clone(&inner.calls);
    let future = layer.layer(inner).call(plain());
    assert_eq!(calls.get(), 1);
    drop(future);
}

/// A service that must be polled ready before each call. Its clones are not ready.
#[derive(Default)]
struct Careful {
    is_ready: bool,
}

impl Clone for Careful {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<B> Service<Request<B>> for Careful {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(self.is_ready, "called without having been polled ready");
        self.is_ready = false;
        ready(Ok(Response::new(Full::from("hello"))))
    }
}

#[test]
fn the_service_that_was_polled_ready_is_the_one_called() {
    for layer in now_and_later() {
        let mut service = layer.layer(Careful::default());
        for _ in 0..3 {
            at_once(poll_fn(|cx| {
                Service::<Request<()>>::poll_ready(&mut service, cx)
            }))
            .unwrap();
            let answer = read(at_once(service.call(Request::new(()))).unwrap());
            assert_eq!(answer.text(), "hello");
        }
    }
}

#[test]
fn several_requests_in_flight_have_a_ready_service_each() {
    let slow = Slow::new(standing_store().0);
    let gate = std::sync::Arc::clone(&slow.gate);
    let layer = RateLimitLayer::new(api()).store(slow);
    let mut service = layer.layer(Careful::default());
    let mut futures = Vec::new();
    for _ in 0..3 {
        at_once(poll_fn(|cx| {
            Service::<Request<()>>::poll_ready(&mut service, cx)
        }))
        .unwrap();
        futures.push(service.call(Request::new(())));
    }
    gate.add_permits(3);
    for future in futures {
        assert_eq!(read(at_once(future).unwrap()).text(), "hello");
    }
}

#[test]
#[should_panic(expected = "called without having been polled ready")]
fn a_caller_that_did_not_poll_finds_no_readiness() {
    let [layer, _] = now_and_later();
    drop(layer.layer(Careful::default()).call(plain()));
}

type Mock = mock::Mock<Request<Full<Bytes>>, Response<Full<Bytes>>>;

fn poll_ready<S: Service<Request<Full<Bytes>>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn it_is_ready_when_the_inner_service_is() {
    for layer in now_and_later() {
        let (inner, mut handle): (Mock, _) = mock::pair();
        handle.allow(0);
        let mut service = layer.layer(inner);
        assert!(poll_ready(&mut service).is_pending());
        handle.allow(1);
        assert!(matches!(poll_ready(&mut service), Poll::Ready(Ok(()))));
    }
}

#[test]
fn it_fails_where_the_inner_service_is_broken() {
    for layer in now_and_later() {
        let (inner, mut handle): (Mock, _) = mock::pair();
        handle.send_error("out of order");
        let mut service = layer.layer(inner);
        let Poll::Ready(Err(error)) = poll_ready(&mut service) else {
            panic!("ready");
        };
        assert!(error.to_string().contains("out of order"));
    }
}

#[tokio::test]
async fn a_request_reaches_the_inner_service_as_it_was_sent() {
    for layer in now_and_later() {
        let (inner, mut handle): (Mock, _) = mock::pair();
        let mut service = layer.layer(inner);
        assert!(matches!(poll_ready(&mut service), Poll::Ready(Ok(()))));
        let mut request = get([("api", "7"), ("x-mine", "yes")]);
        *request.body_mut() = Full::from("body");
        *request.version_mut() = http::Version::HTTP_2;
        request.extensions_mut().insert("extension");
        let (response, ()) = tokio::join!(service.call(request), async {
            let (request, respond) = handle.next_request().await.unwrap();
            let (parts, body) = request.into_parts();
            assert_eq!(parts.headers.len(), 2);
            assert_eq!(parts.headers["x-mine"], "yes");
            assert_eq!(parts.version, http::Version::HTTP_2);
            assert_eq!(parts.extensions.get(), Some(&"extension"));
            assert!(parts.extensions.get::<Decision>().is_some());
            assert_eq!(read(Response::new(body)).text(), "body");
            let response = Response::builder().status(201).header("x-its-own", "1");
            respond.send_response(response.body(Full::from("made")).unwrap());
        });
        let answer = read(response.unwrap());
        assert_eq!((answer.status.as_u16(), answer.text()), (201, "made"));
        assert_eq!(
            answer.names(),
            ["ratelimit", "ratelimit-policy", "x-its-own"]
        );
    }
}

/// An error that is neither `Send` nor `Sync` nor an `Error`.
#[derive(Clone)]
struct Odd(Rc<str>);

#[derive(Clone)]
struct Fails(Odd);

impl<B> Service<Request<B>> for Fails {
    type Response = Response<Full<Bytes>>;
    type Error = Odd;
    type Future = Ready<Result<Self::Response, Odd>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Odd>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Err(self.0.clone()))
    }
}

#[test]
fn errors_of_the_inner_service_pass_untouched() {
    for layer in now_and_later() {
        let odd = Odd("odd".into());
        let mut service = layer.layer(Fails(odd.clone()));
        let error = at_once(service.call(plain())).err().unwrap();
        assert!(Rc::ptr_eq(&error.0, &odd.0));
    }
}

#[test]
fn a_denial_is_a_response_and_never_an_error() {
    for layer in now_and_later() {
        let mut service = layer.layer(Fails(Odd("odd".into())));
        let denied = at_once(service.call(get([("api", 250)])));
        assert_eq!(denied.ok().unwrap().status(), 403);
    }
}

#[test]
fn a_future_that_is_polled_after_completion_panics() {
    let denying = layer_of([api()]).0;
    ask(&denying, get([("api", "100")]));
    for layer in [vec![denying], now_and_later().into()].concat() {
        let mut future = Box::pin(layer.layer(tower::service_fn(hello)).call(plain()));
        let mut poll = || {
            future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
        };
        assert!(matches!(poll(), Poll::Ready(Ok(_))));
        let again = std::panic::catch_unwind(AssertUnwindSafe(|| drop(poll())));
        let payload = again.unwrap_err();
        let message = match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
        };
        assert_eq!(message, "`ResponseFuture` polled after completion");
    }
}
