//! Callers that are named by parts of a request, such as `header:x-api-key=k1`.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Method, Request, header};

use crate::key::{PeerAddr, request_head::made_up, typed_address};

/// Returns whether a part names a place in a request.
pub(super) fn has_places<'a>(mut parts: impl Iterator<Item = &'a str>) -> bool {
    const PLACES: [&str; 4] = ["header:", "cookie:", "bearer:", "method:"];

    parts.any(|part| PLACES.iter().any(|place| part.starts_with(place)))
}

/// Makes a request from these parts.
pub(super) fn request<'a>(
    parts: impl Iterator<Item = &'a str>,
) -> Result<Request<()>, &'static str> {
    const NO_PART: &str = "one of them is no part of a request; write header:NAME=VALUE, \
        cookie:NAME=VALUE, bearer:TOKEN, method:GET or ip:ADDRESS";

    let mut request = made_up();
    for part in parts {
        add(&mut request, part).ok_or(NO_PART)?;
    }
    Ok(request)
}

fn add(request: &mut Request<()>, part: &str) -> Option<()> {
    let (place, value) = part.split_once(':')?;
    let (name, value) = match place {
        "ip" => {
            set_peer(request, typed_address(value).ok()?);
            return Some(());
        }
        "method" => {
            *request.method_mut() = Method::from_bytes(value.as_bytes()).ok()?;
            return Some(());
        }
        "header" => {
            let (name, value) = value.split_once('=')?;
            (name.parse::<HeaderName>().ok()?, given(value)?.to_owned())
        }
        "cookie" => {
            let (name, value) = value.split_once('=')?;
            (header::COOKIE, format!("{name}={}", given(value)?))
        }
        "bearer" => (header::AUTHORIZATION, format!("Bearer {}", given(value)?)),
        _ => return None,
    };
    let value = HeaderValue::from_str(&value).ok()?;
    request.headers_mut().append(name, value);
    Some(())
}

/// Returns a value, unless it is empty: without it, another part would name the caller.
fn given(value: &str) -> Option<&str> {
    (!value.trim().is_empty()).then_some(value)
}

/// Lets a request come from an address.
pub(super) fn set_peer(request: &mut Request<()>, peer: SocketAddr) {
    // For closures that read what axum's server puts there.
    #[cfg(feature = "axum")]
    request
        .extensions_mut()
        .insert(axum::extract::ConnectInfo(peer));
    request.extensions_mut().insert(PeerAddr(peer));
}
