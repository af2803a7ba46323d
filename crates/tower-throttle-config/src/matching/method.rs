//! Methods.

use http::Method;

use super::Finding;

/// Parses the name of a method.
///
/// # Errors
///
/// What is wrong with it, and what to write instead.
pub(crate) fn parse_method(name: &str) -> Result<Method, String> {
    let method = Method::from_bytes(name.as_bytes());
    let method = method.map_err(|_| format!("{name:?} is no method; write one as in \"GET\""))?;
    // Names of methods are compared with their case.
    if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let upper = name.to_ascii_uppercase();
        return Err(format!("no method {name:?}; did you mean {upper:?}?"));
    }
    Ok(method)
}

/// Returns whether a request has one of the methods. `GET` includes `HEAD`, which servers answer
/// with the handler of `GET`: a client could otherwise avoid the limit of a `GET`. Some servers read
/// `post` as `POST`.
pub(super) fn find(methods: &[Method], method: &Method) -> Finding {
    let is_one = |is_same: fn(&str, &str) -> bool| {
        methods.iter().any(|known| {
            is_same(known.as_str(), method.as_str())
                || (known == Method::GET && is_same("HEAD", method.as_str()))
        })
    };
    if is_one(str::eq) {
        Some(true)
    } else if is_one(str::eq_ignore_ascii_case) {
        None
    } else {
        Some(false)
    }
}
