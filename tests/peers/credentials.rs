//! One login has one key: in whatever way a client writes a header, a bearer token or a cookie,
//! the login that axum-extra's extractors read has one bucket.

use std::convert::Infallible;

use axum::{
    Router,
    body::Body,
    extract::Request as Req,
    middleware::{self, Next},
    response::Response as Res,
    routing::get,
};
use axum_extra::{
    TypedHeader,
    extract::cookie::CookieJar,
    headers::{self, Authorization, HeaderMapExt, authorization::Bearer},
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use proptest::{collection::vec, prelude::*, sample::select};
use tower::{Layer, ServiceExt};
use tower_throttle::{
    FixedWindow, Key, Policy, RateLimitLayer, RequestHead,
    key::{self, KeyError, KeyExtractor},
};

type Lines<'a> = &'a [(&'a str, &'a [u8])];

fn request(lines: Lines<'_>) -> Request<()> {
    let mut request = Request::new(());
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name, value);
    }
    request
}

fn extract(by: &impl KeyExtractor, lines: Lines<'_>) -> Result<Key, KeyError> {
    by.extract(&RequestHead::from(&request(lines)))
}

/// Returns what a handler gets by `TypedHeader<Authorization<Bearer>>`.
fn bearer_login(headers: &HeaderMap) -> Option<String> {
    let TypedHeader(login) = headers
        .typed_get::<Authorization<Bearer>>()
        .map(TypedHeader)?;
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

/// Returns how many of these requests pass one layer with a limit of 1 a day. A request that
/// passes is logged in as `login`.
fn passed<K: KeyExtractor>(
    by: K,
    login: fn(&HeaderMap) -> Option<String>,
    expected: &'static str,
    requests: Vec<Request<()>>,
) -> usize {
    let handler = tower::service_fn(move |request: Request<()>| async move {
        assert_eq!(login(request.headers()).as_deref(), Some(expected));
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let policy = Policy::new("login", FixedWindow::per_day(1)).key(by);
    let service = RateLimitLayer::new(policy).layer(handler);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut passed = 0;
    for request in requests {
        let response = runtime.block_on(service.clone().oneshot(request)).unwrap();
        match response.status() {
            StatusCode::OK => passed += 1,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::FORBIDDEN => {}
            status => panic!("{status}"),
        }
    }
    passed
}

/// Variants of blanks and case.
fn bearer_spellings() -> Vec<Vec<u8>> {
    let schemes = ["Bearer", "bearer", "BEARER", "bEaReR"];
    let spellings = (0..10).flat_map(|blanks| {
        schemes.map(|scheme| {
            let blanks = " ".repeat(blanks);
            format!("{scheme} {blanks}s3cret.token").into_bytes()
        })
    });
    spellings.collect()
}

#[test]
fn forty_spellings_of_one_bearer_token_share_a_limit_of_one() {
    let spellings = bearer_spellings();
    assert_eq!(spellings.len(), 40);
    let requests = || {
        let requests = spellings.iter();
        requests
            .map(|spelling| request(&[("authorization", spelling)]))
            .collect()
    };
    let count = passed(
        key::bearer_token(),
        bearer_login,
        "s3cret.token",
        requests(),
    );
    assert_eq!(count, 1);
}

/// Some of the bytes of `s3cret` percent-encoded, with some names and quotes.
fn cookie_spellings() -> Vec<String> {
    let spellings = (0..40_u32).map(|choice| {
        let encode = |(at, byte): (usize, u8)| match choice >> at & 1 {
            0 => char::from(byte).to_string(),
            _ => format!("%{byte:02x}"),
        };
        let value: String = b"s3cret".iter().copied().enumerate().map(encode).collect();
        match choice % 4 {
            0 => format!("sid={value}"),
            1 => format!("s%69d={value}"),
            2 => format!("a=b; sid = {value} ;c=d"),
            _ => format!("sid=\"{value}\""),
        }
    });
    spellings.collect()
}

#[test]
fn forty_spellings_of_one_cookie_share_a_limit_of_one() {
    let spellings = cookie_spellings();
    assert_eq!(spellings.len(), 40);
    let requests = spellings
        .iter()
        .map(|spelling| request(&[("cookie", spelling.as_bytes())]))
        .collect();
    assert_eq!(
        passed(key::cookie("sid"), cookie_login, "s3cret", requests),
        1
    );
}

#[test]
fn junk_cookies_before_the_real_one_open_no_bucket() {
    let junk = (0..40).map(|junk| format!("sid=junk-{junk}; sid=real"));
    let requests = junk.map(|junk| request(&[("cookie", junk.as_bytes())]));
    let count = passed(key::cookie("sid"), cookie_login, "real", requests.collect());
    assert_eq!(count, 0);
}

/// Authentication first, then a key by the user that it found.
#[tokio::test]
async fn behind_authentication_invented_credentials_open_no_bucket() {
    #[derive(Clone)]
    struct User(u64);

    async fn authenticate(mut request: Req, next: Next) -> Result<Res, StatusCode> {
        let user = match bearer_login(request.headers()).as_deref() {
            Some("s3cret.token") => User(7),
            Some("other") => User(8),
            _ => return Err(StatusCode::UNAUTHORIZED),
        };
        request.extensions_mut().insert(user);
        Ok(next.run(request).await)
    }

    let by_user = || key::extension(|user: &User| user.0);
    let app = |by: Policy| {
        Router::new()
            .route("/", get(|| async {}))
            .layer(RateLimitLayer::new(by))
            .layer(middleware::from_fn(authenticate))
    };
    let policy = || Policy::new("day", FixedWindow::per_day(10));
    let passed = async |app: &Router, requests: Vec<Request<()>>| {
        let mut passed = 0;
        for request in requests {
            let answer = app.clone().oneshot(request.map(|()| Body::empty())).await;
            passed += usize::from(answer.unwrap().status() == StatusCode::OK);
        }
        passed
    };
    // One user that writes the token in forty ways, and invents other keys.
    let invented: Vec<_> = (0..200_usize)
        .map(|n| {
            let key = format!("invented-{n}");
            let spelling = &bearer_spellings()[n % 40];
            request(&[("authorization", spelling), ("x-api-key", key.as_bytes())])
        })
        .collect();
    let by_user = app(policy().key(by_user()));
    assert_eq!(passed(&by_user, invented.clone()).await, 10);
    // Another user has a bucket of its own, and invented tokens have none.
    let other = || vec![request(&[("authorization", b"Bearer other")]); 20];
    assert_eq!(passed(&by_user, other()).await, 10);
    let unknown =
        (0..200).map(|n| request(&[("authorization", format!("Bearer x{n}").as_bytes())]));
    assert_eq!(passed(&by_user, unknown.collect()).await, 0);
    // Shows that a header that is not checked limits nothing.
    let by_header = app(policy().key(key::header("x-api-key")));
    assert_eq!(passed(&by_header, invented).await, 200);
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
    lines(vec![
        b"Bearer",
        b"bearer ",
        b"BEARER\t",
        b"Bearer ",
        b"Basic ",
        b" ",
        b"\t",
        b"real",
        b"junk",
        b"=",
        b",",
        b";",
        b"\"",
        b"%72",
        b"\xff",
    ])
}

fn named<'a>(name: &'a str, lines: &'a [Vec<u8>]) -> Vec<(&'a str, &'a [u8])> {
    lines.iter().map(|line| (name, &line[..])).collect()
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        cases: 4_096,
        ..ProptestConfig::default()
    }
}

/// Decodes as `key::cookie` does: percent-decoded, without a pair of quotes.
fn decoded(login: &str) -> Vec<u8> {
    let jar =
        CookieJar::from_headers(request(&[("cookie", format!("a={login}").as_bytes())]).headers());
    jar.get("a").map_or_else(Vec::new, |cookie| {
        cookie.value_trimmed().as_bytes().to_vec()
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_login_by_bearer_token_has_one_key(lines in bearer_lines()) {
        let lines = named("authorization", &lines);
        if let Some(login) = bearer_login(request(&lines).headers()) {
            match extract(&key::bearer_token(), &lines) {
                Ok(key) => prop_assert_eq!(key, Key::from(login.trim_end())),
                Err(error) => prop_assert!(error.is_missing() || error.is_ambiguous()),
            }
        }
    }

    #[test]
    fn a_login_by_cookie_has_one_key(lines in cookie_lines()) {
        let lines = named("cookie", &lines);
        let found = extract(&key::cookie("sid"), &lines);
        if let Some(login) = cookie_login(request(&lines).headers()) {
            match &found {
                Ok(key) => prop_assert_eq!(key, &Key::from(login)),
                Err(error) => prop_assert!(error.is_missing() || error.is_ambiguous()),
            }
        }
        if let Some(login) = typed_cookie_login(request(&lines).headers()) {
            let login = decoded(&login);
            match found {
                // Bytes that are not UTF-8 are a login for some extractors only.
                Ok(key) if !login.is_empty() => prop_assert_eq!(key, Key::from(&login[..])),
                Ok(_) => {}
                Err(error) => prop_assert!(error.is_missing() || error.is_ambiguous()),
            }
        }
    }

    #[test]
    fn a_login_by_header_has_one_key(lines in bearer_lines()) {
        let lines = named("x-api-key", &lines);
        let by = key::header("x-api-key");
        if let Some(login) = request(&lines).headers().get("x-api-key") {
            match extract(&by, &lines) {
                Ok(key) => prop_assert_eq!(key, Key::from(login.as_bytes().trim_ascii())),
                Err(error) => prop_assert!(error.is_missing() || error.is_ambiguous()),
            }
        }
    }
}
