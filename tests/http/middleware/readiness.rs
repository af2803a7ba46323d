//! When the inner service is polled and called, and with what errors.

use std::{cell::Cell, future::Ready, rc::Rc};

use tower_test::mock;

use crate::prelude::*;

/// Returns the layer on a store that answers at once, and on one that answers later.
fn now_and_later() -> [RateLimitLayer; 2] {
    let later = || {
        let slow = Slow::new(standing_store().0);
        slow.gate.add_permits(1_000);
        layer_on(slow, api())
    };
    [layer_of([api()]).0, later()]
}

#[test]
fn the_service_that_was_polled_ready_is_called_and_none_on_a_denial() {
    for layer in now_and_later() {
        let inner = Careful::default();
        let calls = Rc::clone(&inner.calls);
        let mut service = layer.layer(inner);
        let seen = [60, 60, 250, 40, 1].map(|cost| {
            assert!(poll_ready(&mut service).is_ready());
            let answer = read(at_once(service.call(get([("api", cost)]))).unwrap());
            (answer.status.as_u16(), calls.get())
        });
        assert_eq!(seen, [(200, 1), (429, 1), (403, 1), (200, 2), (429, 2)]);
    }
}

/// A service that must be polled ready before each call. Its clones are not ready, and count
/// calls together: in `call` itself, before its future is polled.
#[derive(Default)]
struct Careful {
    is_ready: bool,
    calls: Rc<Cell<u32>>,
}

impl Clone for Careful {
    fn clone(&self) -> Self {
        let calls = Rc::clone(&self.calls);
        Self {
            is_ready: false,
            calls,
        }
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
        self.calls.set(self.calls.get() + 1);
        ready(Ok(Response::new(Full::from("hello"))))
    }
}

#[test]
fn several_requests_in_flight_have_a_ready_service_each() {
    for (layer, called) in now_and_later().into_iter().zip([3, 0]) {
        let inner = Careful::default();
        let calls = Rc::clone(&inner.calls);
        let mut service = layer.layer(inner);
        let futures = [(); 3].map(|()| {
            assert!(poll_ready(&mut service).is_ready());
            service.call(plain())
        });
        // Where the store answers at once, each was called at once.
        assert_eq!(calls.get(), called);
        for future in futures {
            assert_eq!(read(at_once(future).unwrap()).text(), "hello");
        }
    }
}

type Mock = mock::Mock<Request<Full<Bytes>>, Response<Full<Bytes>>>;

fn poll_ready<S: Service<Request<Full<Bytes>>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn it_is_ready_when_the_inner_service_is_and_fails_with_it() {
    for layer in now_and_later() {
        let (inner, mut handle): (Mock, _) = mock::pair();
        handle.allow(0);
        let mut service = layer.layer(inner);
        assert!(poll_ready(&mut service).is_pending());
        handle.allow(1);
        assert!(matches!(poll_ready(&mut service), Poll::Ready(Ok(()))));
        handle.send_error("out of order");
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
        let names = answer.names();
        assert_eq!(names, ["ratelimit", "ratelimit-policy", "x-its-own"]);
    }
}

/// Also an error that is neither `Send` nor `Sync` nor an `Error`.
#[test]
fn errors_of_the_inner_service_pass_untouched_and_a_denial_is_no_error() {
    for layer in now_and_later() {
        let odd: Rc<str> = "odd".into();
        let inner = |_| ready(Err::<Response<Full<Bytes>>, _>(Rc::clone(&odd)));
        let mut service = layer.layer(service_fn(inner));
        let error = at_once(service.call(plain())).err().unwrap();
        assert!(Rc::ptr_eq(&error, &odd));
        let denied = at_once(service.call(get([("api", 250)])));
        assert_eq!(denied.ok().unwrap().status(), 403);
    }
}
