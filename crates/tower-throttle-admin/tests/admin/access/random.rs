//! Requests of random parts: none gets past the guards, and none makes them fail.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use http::Method;
use proptest::{prelude::*, test_runner::TestRunner};
use tower::ServiceExt;

use super::{ANN, Answer, App, RESET, SECRET, ask};

/// What attackers put into fields.
const PIECES: &str = "localhost|127.0.0.1|[::1]|:3000|:|@|http://|https://|null|evil.example|\
    same-origin|cross-site|none|1|tower_throttle=|;|,|\"|Bearer |application/json|.|=| |\u{e9}";
const FIELDS: &str = "host|origin|sec-fetch-site|sec-fetch-mode|sec-fetch-dest|cookie|\
    authorization|content-type|content-length|x-tower-throttle|x-forwarded-for|via";

fn one_of(all: &'static str) -> impl Strategy<Value = &'static str> {
    prop::sample::select(all.split('|').collect::<Vec<_>>())
}

fn value() -> impl Strategy<Value = String> {
    prop::collection::vec(one_of(PIECES), 0..4).prop_map(|pieces| pieces.concat())
}

#[test]
fn no_mixture_of_fields_gets_past_the_guards() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let field = (one_of(FIELDS), value());
    let asked = (
        prop::sample::select(&[Method::GET, Method::HEAD, Method::POST, Method::PUT][..]),
        prop::sample::select(&[RESET, "/admin", "/admin/session", "/admin/look-up"][..]),
        prop::collection::vec(field, 0..6),
        prop::bool::ANY,
    );
    let app = App::bearer();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(2_000));
    let seen = RefCell::new(BTreeSet::new());
    runner
        .run(&asked, |(method, target, fields, is_json)| {
            let mut asked = ask(method, target);
            asked.body = ANN.into();
            if is_json {
                asked = asked
                    .with("content-type", "application/json")
                    .with("x-tower-throttle", "1");
            }
            for (name, value) in fields {
                asked = asked.and(name, value.as_bytes());
            }
            app.clock.advance(Duration::from_secs(60));
            let response = app.router.clone().oneshot(asked.request());
            let answer = runtime.block_on(async { Answer::read(response.await).await });
            seen.borrow_mut().insert(answer.status.as_u16());
            prop_assert!(!answer.status.is_server_error(), "{answer:?}");
            prop_assert!(!answer.fields.contains_key("set-cookie"), "{answer:?}");
            prop_assert!(!answer.body.contains(SECRET));
            answer.field("content-security-policy");
            Ok(())
        })
        .expect("no failure");
    assert!(!app.was_reset());
    let seen = seen.into_inner();
    assert!(seen.len() >= 5, "{seen:?}");
}
