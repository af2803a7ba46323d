//! Waiting for the first of two futures.

use std::{future::poll_fn, pin::pin, task::Poll};

pub(super) enum Either<A, B> {
    First(A),
    Second(B),
}

/// Waits until one of them is ready; the first goes first if both are.
pub(super) async fn either<A: Future, B: Future>(
    first: A,
    second: B,
) -> Either<A::Output, B::Output> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(output) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(output));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}
