//! Keys that a client sends: a header, a bearer token, a cookie.
//!
//! Each reads one credential as one key, however the client spells it. If the extractors of
//! handlers could disagree about the credential, the key is ambiguous. Otherwise one login would
//! have a bucket for each junk value that is sent with it.

use std::iter;

use http::{
    HeaderName,
    header::{AUTHORIZATION, COOKIE, HOST},
};
use smallvec::SmallVec;

use super::{
    Key, KeyError, KeySource, RequestHead,
    combine::Extractor,
    error::{Lack, keep_name},
    host::Host,
};
use crate::{ConfigError, caller_key::INLINE_KEY_BYTES};

/// Reads the value of the header of this name, without blanks around it.
///
/// The key is missing if the header is absent or empty, and [ambiguous](KeyError::is_ambiguous) if
/// it occurs several times with different values. `host` is the host that the target of the request
/// and the `Host` field name, in lower case and without port and final dot. It is ambiguous if they
/// disagree, or if the value is not a valid host.
///
/// **The client chooses it.** A client that invents a value for each request has a bucket
/// for each. Use [`extension`](super::extension) with what authentication found. For
/// `Authorization: Bearer ..` use [`bearer_token`], which parses that scheme.
pub fn header(name: &str) -> Extractor {
    let kept_name = keep_name(name);
    let missing = move |source| KeyError::missing_from(source, kept_name);
    let parsed = name.parse::<HeaderName>().ok();
    let checked = parsed.as_ref().map(drop);
    let checked = checked.ok_or_else(|| ConfigError::header_name(name));
    let source = KeySource::Header(name.to_ascii_lowercase());
    let read = move |head: &RequestHead<'_>| {
        let name = parsed.as_ref().ok_or(missing(Lack::Header))?;
        if *name == HOST {
            return match Host::of(head) {
                Ok(Some(host)) => Ok(Key::from(&*host.to_string())),
                Ok(None) => Err(missing(Lack::Header)),
                Err(_) => Err(missing(Lack::Headers)),
            };
        }
        match only(head.lines(name), missing(Lack::Headers))? {
            None | Some([]) => Err(missing(Lack::Header)),
            Some(value) => Ok(Key::from(value)),
        }
    };
    Extractor {
        checked,
        ..Extractor::new(source, read)
    }
}

/// Returns the value that all of them have, or `ambiguous` if they differ.
fn only<T: PartialEq>(
    mut values: impl Iterator<Item = T>,
    ambiguous: KeyError,
) -> Result<Option<T>, KeyError> {
    let first = values.next();
    match values.all(|value| Some(&value) == first.as_ref()) {
        true => Ok(first),
        false => Err(ambiguous),
    }
}

/// Reads the token of `Authorization: Bearer ..` (RFC 6750).
///
/// The case of the scheme and the number of blanks do not matter, as for axum-extra's
/// `TypedHeader<Authorization<Bearer>>`, so one token is one key. The key is missing
/// without such a header and if the token is empty. It is [ambiguous](KeyError::is_ambiguous) if
/// the token is not visible ASCII, and if several lines have different credentials.
///
/// **The client chooses it**, as with [`header`], and one user may have many valid tokens.
/// To count users, use [`extension`](super::extension) with the user that authentication
/// found.
///
/// ```
/// use http::Request;
/// use tower_throttle::{Key, RequestHead, key};
///
/// for spelling in ["Bearer s3cret", "bearer  s3cret"] {
///     let request = Request::get("/").header("authorization", spelling).body(())?;
///     let key = key::bearer_token().extract(&RequestHead::from(&request))?;
///     assert_eq!(key, Key::from("s3cret"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bearer_token() -> Extractor {
    let error = |source| KeyError::missing_from(source, Some("authorization"));
    Extractor::new(KeySource::BearerToken, move |head| {
        let tokens = head.lines(&AUTHORIZATION).map(token_of);
        match only(tokens, error(Lack::BearerTokens))?.flatten() {
            None => Err(error(Lack::BearerToken)),
            Some(token) if token.iter().all(u8::is_ascii_graphic) => Ok(Key::from(token)),
            Some(_) => Err(error(Lack::BearerTokens)),
        }
    })
}

/// Returns what follows the scheme, unless it is another scheme or nothing.
fn token_of(credentials: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"Bearer";

    let (scheme, rest) = credentials.split_at_checked(SCHEME.len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(SCHEME) && matches!(rest, [b' ' | b'\t', ..]);
    let token = rest.trim_ascii_start();
    (is_bearer && !token.is_empty()).then_some(token)
}

/// Reads the value of the cookie of this name.
///
/// It is read as by axum-extra's `CookieJar`: names and values are percent-decoded, and a
/// pair of quotes around the value is removed. The key is missing if the cookie is absent
/// or empty, and [ambiguous](KeyError::is_ambiguous) if it occurs several times with different
/// values, since cookie jars disagree about which of them counts.
///
/// **The client chooses it**, as with [`header`]. Use [`extension`](super::extension) with
/// the session that authentication found. A site on a neighboring subdomain can set a
/// second cookie of the same name, so that its visitors are denied here. A name that starts
/// with `__Host-` prevents that.
pub fn cookie(name: &str) -> Extractor {
    // A cookie name is a token, as a header name is, but its case matters.
    let checked = match HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok(()),
        Err(_) => Err(ConfigError::new(
            "cookie-name",
            format!("{name:?} is not a cookie name; use a token such as \"session\""),
        )),
    };
    let kept_name = keep_name(name);
    let name = name.to_owned();
    let source = KeySource::Cookie(name.clone());
    let read = move |head: &RequestHead<'_>| cookie_value(&name, kept_name, head);
    Extractor {
        checked,
        ..Extractor::new(source, read)
    }
}

fn cookie_value(
    name: &str,
    kept_name: Option<&'static str>,
    head: &RequestHead<'_>,
) -> Result<Key, KeyError> {
    let missing = |source| KeyError::missing_from(source, kept_name);
    let mut values = head
        .lines(&COOKIE)
        .flat_map(|line| line.split(|byte| *byte == b';'))
        .filter_map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let (found, value) = pair.split_at(equals);
            let is_it = percent_decoded(found.trim_ascii()).eq(name.bytes());
            is_it.then(|| value.get(1..).unwrap_or_default().trim_ascii())
        });
    let text = values.next().ok_or(missing(Lack::Cookie))?;
    let decoded = |text| percent_decoded(text).collect::<SmallVec<[u8; INLINE_KEY_BYTES]>>();
    let decoded_text = decoded(text);
    let value = without_quotes(&decoded_text);
    let is_same = |other| without_quotes(&decoded(other)) == value;
    if !values.all(is_same) {
        Err(missing(Lack::Cookies))
    } else if value.is_empty() {
        Err(missing(Lack::Cookie))
    } else {
        Ok(Key::from(value))
    }
}

/// Decodes `%41` to `A`. A `%` without two hexadecimal digits stays.
fn percent_decoded(mut text: &[u8]) -> impl Iterator<Item = u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    iter::from_fn(move || {
        let (first, rest) = text.split_first()?;
        text = rest;
        if let (b'%', [high, low, rest @ ..]) = (first, rest) {
            if let (Some(high), Some(low)) = (digit(*high), digit(*low)) {
                text = rest;
                return u8::try_from(high << 4 | low).ok();
            }
        }
        Some(*first)
    })
}

/// Removes one pair of quotes around the value.
fn without_quotes(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inside @ .., b'"'] => inside,
        _ => value,
    }
}
