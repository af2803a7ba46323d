//! The lists of denials take a bounded amount of memory, for any number of callers.

use std::{array, convert::Infallible, thread};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::service_fn;

use crate::support::prelude::*;
use crate::{ALLOCATOR, support::web::layer_with, turn};

async fn hello(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::default())
}

/// Sends a request of each of these callers, which the layer denies.
fn deny(layer: &RateLimitLayer, callers: std::ops::Range<u64>) {
    for caller in callers {
        let request = Request::get("/").header("x-api-key", format!("{caller:0>251}"));
        let request = request.body(());
        let response = layer
            .layer(service_fn(hello))
            .oneshot(request.expect("a request"));
        assert_eq!(at_once(response).expect("a response").status(), 403);
    }
}

/// Returns the bytes that the lists of a layer take whose policies deny a hundred thousand callers.
fn held_by_lists<const POLICIES: usize>() -> usize {
    const THREADS: u64 = 16;
    const EACH: u64 = 100_000 / THREADS;

    // The store keeps no bucket for a cost that it can never grant.
    let nothing: [Policy; POLICIES] = array::from_fn(|number| {
        let nothing = Policy::new(format!("nothing-{number}"), TokenBucket::per_day(1));
        nothing.cost_by(|_| 2).key(key::header("x-api-key"))
    });
    // By a clock that stands, as counts are halved every ten minutes.
    let (layer, _) = layer_with(nothing, |builder| {
        builder.name_offenders(|_: &RequestHead<'_>| Some("é".repeat(1_000)))
    });
    let before = ALLOCATOR.current_usage();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let layer = &layer;
            scope.spawn(move || deny(layer, thread * EACH..(thread + 1) * EACH));
        }
    });
    let held = ALLOCATOR.current_usage().saturating_sub(before);
    println!("{POLICIES} policies: {held} bytes");
    let top = layer.top_denied(usize::MAX);
    assert!(top.missed > 0 || top.total == THREADS * EACH * POLICIES as u64);
    assert_eq!(top.offenders.len(), 128);
    assert_eq!(layer.recent_denials().len(), 256);
    held
}

#[test]
fn a_hundred_thousand_denied_callers_take_200_kb_in_the_lists_of_a_layer() {
    let _turn = turn();
    assert!(held_by_lists::<1>() < 200_000);
    assert!(held_by_lists::<5>() < 248_000);
    assert!(held_by_lists::<8>() < 284_000);
}
