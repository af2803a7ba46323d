//! Which site a request comes from: the page itself, or another one in the same browser.

use http::{HeaderMap, Method, uri::Authority};
use tower_throttle::RequestHead;

use super::problem::{Code, Problem};

const ORIGIN: &str = "origin";
const SITE: &str = "sec-fetch-site";

/// Returns the host that a request names, with its port: the field `Host`, or what HTTP/2 sends as
/// `:authority`. A request with both that differ names none.
pub(crate) fn host<'a>(head: &RequestHead<'a>) -> Result<Option<&'a str>, Problem> {
    let field = only(head.headers(), "host").map_err(|()| Code::Host)?;
    let authority = head.uri().authority().map(Authority::as_str);
    match (field, authority) {
        (Some(field), Some(authority)) if !field.eq_ignore_ascii_case(authority) => {
            Err(Code::Host.into())
        }
        (field, authority) => Ok(authority.or(field)),
    }
}

/// Checks that no other site sends this request. Browsers state the origin of a request, and pages
/// cannot change that statement. Programs send none.
///
/// Another site may link to the page: it may open the page in a tab.
pub(crate) fn check(head: &RequestHead<'_>, host: Option<&str>) -> Result<(), Problem> {
    let field = |name| only(head.headers(), name).map_err(|()| Code::CrossOrigin);
    let is_read = [Method::GET, Method::HEAD].contains(head.method());
    let site = field(SITE)?;
    let is_own = match site {
        None | Some("same-origin") => true,
        // It was typed, or is a bookmark.
        Some("none") => is_read,
        Some(_) => {
            let is_tab = field("sec-fetch-mode")? == Some("navigate")
                && field("sec-fetch-dest")? == Some("document");
            is_read && is_tab && !head.uri().path().starts_with("/api/")
        }
    };
    let is_own = is_own
        && match field(ORIGIN)? {
            None => true,
            // A form of the page sends this, because of its `Referrer-Policy`. So does a page in
            // a sandbox, which is never of the same origin.
            Some("null") => site == Some("same-origin"),
            Some(origin) => host.is_some_and(|host| is_origin_of(origin, host)),
        };
    Code::CrossOrigin.unless(is_own)
}

/// Returns whether a browser states the origin of a request. It is checked by [`check`].
pub(crate) fn is_stated(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key(SITE)
}

/// Returns whether an origin is that of a host. The server does not know whether a proxy in front of
/// it has HTTPS, so both schemes are right.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let without = |text: &str, port| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    let is_of = |scheme, port| {
        let origin = origin.strip_prefix(scheme).filter(|host| !host.is_empty());
        origin.is_some_and(|origin| without(origin, port) == without(host, port))
    };
    is_of("https://", ":443") || is_of("http://", ":80")
}

/// Returns the value of a field that may be there once. An error is a second one, or a value that is
/// no text.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ()> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::is_origin_of;

    #[test]
    fn an_origin_is_compared_with_its_port() {
        for (origin, host) in [
            ("https://ops.example", "ops.example"),
            ("https://ops.example", "OPS.example:443"),
            ("http://ops.example", "ops.example:80"),
            ("http://localhost:3000", "localhost:3000"),
            ("http://[::1]:3000", "[::1]:3000"),
        ] {
            assert!(is_origin_of(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("https://evil.example", "ops.example"),
            ("https://ops.example.evil.example", "ops.example"),
            ("https://xops.example", "ops.example"),
            ("https://ops.example@evil.example", "ops.example"),
            ("http://localhost:3001", "localhost:3000"),
            ("http://ops.example", "ops.example:443"),
            ("http://localhost:3000", "localhost"),
            ("null", "null"),
            ("https://", ""),
            ("file://", ""),
            ("ftp://ops.example", "ops.example"),
            ("ops.example", "ops.example"),
            ("https://ops.example/", "ops.example"),
            ("https://ops.example, https://evil.example", "ops.example"),
        ] {
            assert!(!is_origin_of(origin, host), "{origin} {host}");
        }
    }
}
