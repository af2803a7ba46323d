//! Bodies of any type pass through the layer unchanged.

use std::{collections::VecDeque, rc::Rc};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};

use crate::prelude::*;

/// A body of these frames, or an error, with this size hint and end.
struct Frames<D> {
    frames: VecDeque<Result<Frame<D>, &'static str>>,
    hint: SizeHint,
}

impl<D> Frames<D> {
    fn new(frames: impl IntoIterator<Item = Result<Frame<D>, &'static str>>) -> Self {
        let mut hint = SizeHint::new();
        hint.set_lower(3);
        hint.set_upper(77);
        let frames = frames.into_iter().collect();
        Self { frames, hint }
    }
}

impl<D: Buf + Unpin> Body for Frames<D> {
    type Data = D;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<D>, &'static str>>> {
        Poll::Ready(self.frames.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

/// A buffer of the application's own.
#[derive(Debug, PartialEq)]
struct Chunk(Vec<u8>);

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self(bytes.to_vec())
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.0.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.0
    }

    fn advance(&mut self, count: usize) {
        self.0.drain(..count);
    }
}

/// Sends a request to a service that answers with this body.
fn respond<B: Body>(body: B, cost: u64) -> Response<ResponseBody<B>> {
    let request = get([("api", cost)]);
    responding(&layer_of([api()]).0, request, Response::new(body))
}

#[test]
fn data_trailers_errors_and_size_hints_pass_through() {
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "7".parse().unwrap());
    let frames = [
        Ok(Frame::data(Bytes::from("one"))),
        Err("torn"),
        Ok(Frame::trailers(trailers.clone())),
    ];
    let mut body = respond(Frames::new(frames), 1).into_body();
    let bounds = (body.size_hint().lower(), body.size_hint().upper());
    assert_eq!(bounds, (3, Some(77)));
    assert!(!body.is_end_stream());
    let mut next = || at_once(body.frame());
    assert_eq!(next().unwrap().unwrap().into_data().unwrap(), "one");
    assert_eq!(next().unwrap().unwrap_err(), "torn");
    let found = next().unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(found, trailers);
    assert!(next().is_none());
    assert!(body.is_end_stream());
}

#[test]
fn buffers_of_the_applications_own_carry_denials_too() {
    let forwarded = respond(Frames::new([Ok(Frame::data(Chunk(b"one".to_vec())))]), 1);
    let mut body = forwarded.into_body();
    let frame = at_once(body.frame()).unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), Chunk(b"one".to_vec()));

    let denied = respond(Frames::<Chunk>::new([]), 250);
    assert_eq!(denied.status(), 403);
    let mut body = denied.into_body();
    let length = body.size_hint().exact().unwrap();
    assert!(!body.is_end_stream());
    let Chunk(bytes) = at_once(body.frame()).unwrap().unwrap().into_data().unwrap();
    assert_eq!(bytes.len() as u64, length);
    assert!(bytes.starts_with(b"{\"type\""));
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(at_once(body.frame()).is_none());
}

#[test]
fn requests_and_responses_need_not_have_bodies_at_all() {
    struct NoBody(Rc<u8>);
    let (layer, _) = layer_of([api()]);
    let inner = |request: Request<NoBody>| async move {
        let NoBody(number) = request.into_body();
        Ok::<_, Infallible>(Response::new(number))
    };
    let mut service = layer.layer(service_fn(inner));
    let response = at_once(service.call(Request::new(NoBody(Rc::new(7))))).unwrap();
    assert!(response.headers().contains_key("ratelimit"));
}

#[test]
fn a_body_that_must_stay_in_place_passes_through() {
    struct Pinned(&'static str, std::marker::PhantomPinned);
    impl Body for Pinned {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(self.0)))))
        }
    }
    let body = respond(Pinned("stay", std::marker::PhantomPinned), 1).into_body();
    let mut body = Box::pin(body);
    let frame = at_once(body.frame()).unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "stay");
}
