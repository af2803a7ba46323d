//! Bodies that are too large, too slow or too deep.

use std::pin::Pin;

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;

use super::{ANN, Answer, App, RESET, form, post};
use crate::support::prelude::*;

const MOST: usize = 16 * 1024;

/// Sends a body without saying how long it is.
async fn ask_in_frames(app: &App, target: &str, body: Frames) -> Answer {
    let request = post(target, "").request().map(|_| Body::new(body));
    Answer::read(app.router.clone().oneshot(request).await).await
}

/// A body of equal frames. `None`: it never ends, and the next frame never comes. Without bytes, it
/// breaks off.
struct Frames {
    left: Option<usize>,
    frame: &'static [u8],
}

const NEVER: Frames = Frames {
    left: None,
    frame: b"",
};

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match self.left {
            None => Poll::Pending,
            Some(0) => Poll::Ready(None),
            Some(_) if self.frame.is_empty() => Poll::Ready(Some(Err("it hung up".into()))),
            Some(left) => {
                self.left = Some(left - 1);
                let frame = Bytes::from_static(self.frame);
                Poll::Ready(Some(Ok(Frame::data(frame))))
            }
        }
    }
}

#[tokio::test]
async fn a_body_above_16_kib_is_denied() {
    let app = App::loopback();
    let padded = |length: usize| format!("{ANN}{}", " ".repeat(length - ANN.len()));
    let answer = app.ask(&post(RESET, &padded(MOST + 1))).await;
    answer.assert_is(413, "too-large");
    // Before anything of it has arrived.
    let announced = post(RESET, ANN).with("content-length", "16385");
    app.ask(&announced).await.assert_is(413, "too-large");
    // One that ends earlier than it says, and one that has several ends.
    for length in ["1", "x", "-1", "99999999999999999999999"] {
        let asked = post(RESET, &padded(MOST + 1)).with("content-length", length);
        app.ask(&asked).await.assert_is(413, "too-large");
    }
    assert!(!app.was_reset());
    app.ask(&post(RESET, &padded(MOST))).await.assert_done();
    assert!(app.was_reset());

    let app = App::bearer();
    let large = "x".repeat(MOST + 1);
    for asked in [
        post("/admin/session", &large),
        form("/admin/session", &large),
    ] {
        app.ask(&asked).await.assert_is(413, "too-large");
    }
}

#[tokio::test]
async fn a_body_above_16_kib_is_denied_in_chunks_too() {
    let app = App::loopback();
    let frame = b"                ";
    let spaces = |left| Frames {
        left: Some(left),
        frame,
    };
    let answer = ask_in_frames(&app, RESET, spaces(MOST / 16 + 1)).await;
    answer.assert_is(413, "too-large");
    // It is not read to its end.
    let endless = ask_in_frames(&app, RESET, spaces(usize::MAX)).await;
    endless.assert_is(413, "too-large");
    // So many spaces are no JSON, but they are read.
    let answer = ask_in_frames(&app, RESET, spaces(MOST / 16)).await;
    assert_eq!(answer.status, 400, "{answer:?}");
}

/// The time of this test is that of tokio, which passes when there is nothing else to do.
#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let app = App::loopback();
    let started = tokio::time::Instant::now();
    let answer = ask_in_frames(&app, RESET, NEVER).await;
    answer.assert_is(408, "too-slow");
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_malformed() {
    let app = App::loopback();
    let left = Some(1);
    let broken = Frames { left, frame: b"" };
    let answer = ask_in_frames(&app, RESET, broken).await;
    answer.assert_is(400, "malformed");
    assert!(!answer.body.contains("hung up"));
}

/// Without access, no request makes the server read a body, except a login.
#[tokio::test]
async fn a_stranger_sends_no_body() {
    let app = App::bearer();
    let answer = ask_in_frames(&app, RESET, NEVER).await;
    answer.assert_is(401, "no-token");
}

#[tokio::test]
async fn json_that_is_too_deep_is_denied() {
    let app = App::loopback();
    let deep = 8_000;
    let arrays = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    let objects = format!(r#"{}1{}"#, r#"{"a":"#.repeat(2_000), "}".repeat(2_000));
    let inside = format!(r#"{{"caller":{arrays}}}"#);
    for body in [&arrays, &objects, &inside] {
        for target in [RESET, "/admin/api/v1/lookup"] {
            let answer = app.ask(&post(target, body)).await;
            assert_eq!(answer.status, 400, "{answer:?}");
        }
    }
    let app = App::bearer();
    for body in [arrays, objects, format!(r#"{{"token":{inside}}}"#)] {
        let answer = app.ask(&post("/admin/session", &body)).await;
        answer.assert_is(400, "malformed");
    }
}
