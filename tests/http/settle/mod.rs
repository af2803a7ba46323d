//! Policies that settle: what a request costs is known from its response.

mod at_end;
mod at_head;
mod build_errors;
mod cost_header;
pub(crate) mod dropped;
mod fields;
#[cfg(feature = "testing")]
mod gathered;
pub(crate) mod grpc;
mod handler;
#[cfg(feature = "tracing")]
mod logs;
mod policies;
mod racing;
mod served;

use std::collections::VecDeque;

use http_body::{Body, Frame};

use crate::prelude::*;

/// A window for all callers together, without a settler.
fn window(name: &str, limit: u64) -> Policy {
    Policy::new(name, FixedWindow::per_hour(limit)).shared()
}

#[track_caller]
fn left<const N: usize>(layer: &RateLimitLayer) -> [u64; N] {
    let buckets = layer.buckets(&RequestHead::from(&plain()));
    let decision = at_once(buckets.expect("keys").peek()).expect("a decision");
    let left = crate::support::left_of(&decision);
    left.try_into().expect("as many policies")
}

/// Returns how many units the only policy has left.
#[track_caller]
fn left_of(layer: &RateLimitLayer) -> u64 {
    let [left] = left(layer);
    left
}

/// Answers with the status that the request names in the field `answer`.
pub(crate) async fn as_asked(
    request: Request<Full<Bytes>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = request.headers().get("answer");
    let status = status.and_then(|status| StatusCode::from_bytes(status.as_bytes()).ok());
    let mut response = Response::new(Full::from("hello"));
    *response.status_mut() = status.unwrap_or_default();
    Ok(response)
}

#[track_caller]
pub(crate) fn ask_for(layer: &RateLimitLayer, status: u16) -> Answer {
    ask_service(layer.layer(service_fn(as_asked)), get([("answer", status)]))
}

#[track_caller]
fn answered<B>(layer: &RateLimitLayer, respond: impl Fn() -> Response<B> + Clone) -> Answer
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let inner = service_fn(move |_: Request<Full<Bytes>>| ready(Ok::<_, Infallible>(respond())));
    ask_service(layer.layer(inner), plain())
}

/// A body of these frames. It does not say that it is over before it was polled for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames(VecDeque<Part>);

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Data(&'static str),
    Trailers(HeaderMap),
    Error,
    /// Nothing comes anymore, and the body does not end.
    Never,
}

impl Frames {
    pub(crate) fn new(parts: impl IntoIterator<Item = Part>) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(match self.0.pop_front() {
            None => None,
            Some(Part::Data(text)) => Some(Ok(Frame::data(Bytes::from(text)))),
            Some(Part::Trailers(fields)) => Some(Ok(Frame::trailers(fields))),
            Some(Part::Error) => Some(Err("torn")),
            Some(Part::Never) => {
                self.0.push_front(Part::Never);
                return Poll::Pending;
            }
        })
    }
}
