//! Bodies that are too large, too slow or too deep.

use std::pin::Pin;

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;

use super::{ANN, Answer, App, RESET, form, post};
use crate::support::prelude::*;

const MOST: usize = 16 * 1024;

/// A body of which nothing arrives: it breaks off, or never ends.
enum Silent {
    BreaksOff,
    NeverEnds,
}

impl http_body::Body for Silent {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match *self {
            Self::BreaksOff => Poll::Ready(Some(Err("it hung up".into()))),
            Self::NeverEnds => Poll::Pending,
        }
    }
}

/// Sends a change with such a body.
async fn reset(app: &App, body: Silent) -> Answer {
    let request = post(RESET, "").request().map(|_| Body::new(body));
    Answer::read(app.router.clone().oneshot(request).await).await
}

#[tokio::test]
async fn a_body_above_16_kib_is_denied() {
    let app = App::loopback();
    let padded = |length: usize| format!("{ANN}{}", " ".repeat(length - ANN.len()));
    let large = post(RESET, padded(MOST + 1));
    app.denies(&large, 413, "too-large").await;
    // One that ends earlier than it says, and one that has several ends.
    for length in ["1", "x", "-1", "99999999999999999999999"] {
        let asked = large.clone().with("content-length", length);
        app.denies(&asked, 413, "too-large").await;
    }
    assert!(!app.was_reset());
    app.allows(&post(RESET, padded(MOST))).await;
    assert!(app.was_reset());

    let app = App::bearer();
    let large = "x".repeat(MOST + 1);
    for asked in [
        post("/admin/session", &large),
        form("/admin/session", &large),
    ] {
        app.denies(&asked, 413, "too-large").await;
    }
}

/// The time of this test is that of tokio, which passes when there is nothing else to do.
#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let app = App::loopback();
    let started = tokio::time::Instant::now();
    let answer = reset(&app, Silent::NeverEnds).await;
    answer.assert_is(408, "too-slow");
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_malformed() {
    let app = App::loopback();
    let answer = reset(&app, Silent::BreaksOff).await;
    answer.assert_is(400, "malformed");
    assert!(!answer.body.contains("hung up"));
}

/// Without access, no request makes the server read a body, except a login.
#[tokio::test]
async fn a_stranger_sends_no_body() {
    let app = App::bearer();
    let answer = reset(&app, Silent::NeverEnds).await;
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
        let asked = post("/admin/session", body);
        app.denies(&asked, 400, "malformed").await;
    }
}
