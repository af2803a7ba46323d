//! The stream of samples, as server-sent events.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};
use http_body::Frame;
use tokio::sync::mpsc;

use super::sampler::{Event, Sampler};
use crate::problem::{Code, Problem};

const HEADERS: [(HeaderName, HeaderValue); 2] = [
    (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
    // NGINX would keep the events back.
    (
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    ),
];

/// Returns the events of a viewer until it leaves, or the stream is as long as one may be.
pub(super) fn stream(sampler: &Sampler, headers: &HeaderMap) -> Result<Response, Problem> {
    // A browser sends it when it connects again.
    let last = headers.get("last-event-id");
    let last = last.and_then(|last| last.to_str().ok());
    let events = sampler
        .view(last)
        .ok_or(Problem::new(Code::TooManyStreams))?;
    let pieces = Event::new().into_iter();
    Ok((HEADERS, Body::new(Events { events, pieces })).into_response())
}

/// A body of events. It ends when the sampler drops the viewer.
struct Events {
    events: mpsc::Receiver<Event>,
    /// What is left of the present event.
    pieces: std::vec::IntoIter<Bytes>,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(piece) = self.pieces.next() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match ready!(self.events.poll_recv(cx)) {
                Some(event) => self.pieces = event.into_iter(),
                None => return Poll::Ready(None),
            }
        }
    }
}
