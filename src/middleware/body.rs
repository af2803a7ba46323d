//! The body of a response: the inner service's, or that of a denial.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::settling::Taken;

pin_project! {
    /// The body of a response of [`RateLimit`](crate::RateLimit).
    ///
    /// It wraps the inner service's body without boxing and passes its data, trailers and
    /// errors through. Until the body ends or is dropped, it holds the permits of
    /// [`Concurrency`](crate::Concurrency) policies, and what is settled
    /// [at the end](crate::Settle::AtEnd). A server drops a buffered body as soon as it has
    /// taken the bytes, before they are sent.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProj]
    enum Kind<B> {
        Forwarded { #[pin] body: B, taken: Option<Box<Taken>> },
        Answer { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    /// Holds `taken` until the body has ended.
    pub(super) const fn forwarded(body: B, taken: Option<Box<Taken>>) -> Self {
        Self {
            kind: Kind::Forwarded { body, taken },
        }
    }

    pub(super) fn answer(bytes: Bytes) -> Self {
        Self {
            kind: Kind::Answer {
                bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
            },
        }
    }
}

impl<B> Default for ResponseBody<B> {
    /// An empty body.
    fn default() -> Self {
        Self::answer(Bytes::new())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Forwarded { mut body, taken } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                if let Some(taken) = taken {
                    taken.polled(frame.as_ref(), body.is_end_stream());
                }
                if !matches!(frame, Some(Ok(_))) {
                    // The bytes do not own the permit, as a cache that keeps them would
                    // then keep the permit, too.
                    *taken = None;
                }
                Poll::Ready(frame)
            }
            KindProj::Answer { bytes } => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Forwarded { body, taken } => {
                let is_over = body.is_end_stream();
                if let (true, Some(taken)) = (is_over, taken) {
                    taken.is_over();
                }
                is_over
            }
            Kind::Answer { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Forwarded { body, .. } => body.size_hint(),
            Kind::Answer { bytes } => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(length as u64)
            }
        }
    }
}
