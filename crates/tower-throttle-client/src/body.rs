//! [`OutboundBody`].

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_throttle::Permit;

pin_project! {
    /// The body of a response, which ends the call: permits of a
    /// [`Concurrency`](tower_throttle::Concurrency) policy are held until it has been read or dropped.
    #[derive(Debug)]
    pub struct OutboundBody<B> {
        #[pin]
        body: B,
        permit: Option<Permit>,
    }
}

impl<B> OutboundBody<B> {
    pub(crate) const fn new(body: B, permit: Permit) -> Self {
        let permit = Some(permit);
        Self { body, permit }
    }

    /// Returns the client's own body, and ends the call.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B: Body> Body for OutboundBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = this.body.poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = frame {
            *this.permit = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
