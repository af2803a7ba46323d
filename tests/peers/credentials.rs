//! One login has one key: in whatever way a client writes a header, a bearer token or a cookie,
//! the login that axum-extra's extractors read has one bucket.

use axum_extra::{
    extract::cookie::CookieJar,
    headers::{self, Authorization, HeaderMapExt, authorization::Bearer},
};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use proptest::{collection::vec, prelude::*, sample::select};
use tower_throttle::{
    FixedWindow, Key, Policy, RateLimitLayer, RequestHead,
    key::{self, KeyError},
};

use crate::support::web::{ask, get};

fn request(name: &'static str, lines: &[Vec<u8>]) -> Request<()> {
    let mut request = Request::new(());
    let name = HeaderName::from_static(name);
    for line in lines {
        let value = HeaderValue::from_bytes(line).unwrap();
        request.headers_mut().append(name.clone(), value);
    }
    request
}

/// Returns what a handler gets by `TypedHeader<Authorization<Bearer>>`.
fn bearer_login(headers: &HeaderMap) -> Option<String> {
    let login = headers.typed_get::<Authorization<Bearer>>()?;
    Some(login.token().to_owned()).filter(|token| !token.is_empty())
}

/// Returns what a handler gets by `CookieJar`.
fn cookie_login(headers: &HeaderMap) -> Option<String> {
    let jar = CookieJar::from_headers(headers);
    let login = jar.get("sid")?.value_trimmed().to_owned();
    Some(login).filter(|login| !login.is_empty())
}

/// Returns what a handler gets by `TypedHeader<headers::Cookie>`, which does not decode.
fn typed_cookie_login(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.typed_get::<headers::Cookie>()?;
    let login = cookies.get("sid")?.to_owned();
    // The extractors disagree about a semicolon in quotes.
    Some(login).filter(|login| !login.is_empty() && !login.contains(';'))
}

#[test]
fn forty_spellings_of_one_bearer_token_share_a_limit_of_one() {
    let policy = Policy::new("login", FixedWindow::per_day(1)).key(key::bearer_token());
    let layer = RateLimitLayer::new(policy);
    let mut passed = 0;
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        for blanks in 1..=10 {
            let login = format!("{scheme}{}s3cret.token", " ".repeat(blanks));
            let request = get([("authorization", login)]);
            let login = bearer_login(request.headers());
            assert_eq!(login.as_deref(), Some("s3cret.token"));
            passed += usize::from(ask(&layer, request).status == 200);
        }
    }
    assert_eq!(passed, 1);
}

/// Lines of pieces that extractors read differently.
fn lines(pieces: Vec<&'static [u8]>) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let line = vec(select(pieces), 0..9).prop_map(|pieces| pieces.concat());
    vec(line, 0..4)
}

fn cookie_lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    lines(vec![
        b"sid=", b"sid = ", b"%73id=", b"SID=", b"x=", b"real", b"%72eal", b"r%65al", b"junk",
        b";", b"; ", b"=", b"\"", b"%22", b"%", b"%3B", b"%ff", b"\xff", b" ", b"\t", b",",
    ])
}

fn bearer_lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let pieces = b"Bearer|bearer |BEARER\t|Bearer |Basic | |\t|real|junk|=|,|;|\"|%72|\xff";
    lines(pieces.split(|byte| *byte == b'|').collect())
}

/// Decodes as `key::cookie` does: percent-decoded, without a pair of quotes.
fn decoded(login: &str) -> Vec<u8> {
    let request = request("cookie", &[format!("sid={login}").into_bytes()]);
    let login = CookieJar::from_headers(request.headers());
    let login = login.get("sid").map(|cookie| cookie.value_trimmed().into());
    login.unwrap_or_default()
}

/// The key is that of the login, if there is one, or the request has none.
fn has_key_of(found: &Result<Key, KeyError>, login: Option<&[u8]>) -> bool {
    match found {
        Ok(key) => login.is_none_or(|login| *key == Key::from(login)),
        Err(error) => error.is_missing() || error.is_ambiguous(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 4_096,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_login_by_bearer_token_has_one_key(lines in bearer_lines()) {
        let request = request("authorization", &lines);
        let found = key::bearer_token().extract(&RequestHead::from(&request));
        if let Some(login) = bearer_login(request.headers()) {
            prop_assert!(has_key_of(&found, Some(login.trim_end().as_bytes())), "{:?}", found);
        }
    }

    #[test]
    fn a_login_by_cookie_has_one_key(lines in cookie_lines()) {
        let request = request("cookie", &lines);
        let found = key::cookie("sid").extract(&RequestHead::from(&request));
        if let Some(login) = cookie_login(request.headers()) {
            prop_assert!(has_key_of(&found, Some(login.as_bytes())), "{:?}", found);
        }
        if let Some(login) = typed_cookie_login(request.headers()) {
            let login = decoded(&login);
            // Bytes that are not UTF-8 are a login for some extractors only.
            let login = Some(&login[..]).filter(|login| !login.is_empty());
            prop_assert!(has_key_of(&found, login), "{:?}", found);
        }
    }

    #[test]
    fn a_login_by_header_has_one_key(lines in bearer_lines()) {
        let request = request("x-api-key", &lines);
        let found = key::header("x-api-key").extract(&RequestHead::from(&request));
        if let Some(login) = request.headers().get("x-api-key") {
            prop_assert!(has_key_of(&found, Some(login.as_bytes().trim_ascii())), "{:?}", found);
        }
    }
}
