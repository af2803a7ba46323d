//! Methods.

use http::Method;

/// Parses the name of a method.
///
/// # Errors
///
/// What is wrong with it, and what to write instead.
pub(in crate::config) fn parse_method(name: &str) -> Result<Method, String> {
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
/// with the handler of `GET`: a client could otherwise avoid the limit of a `GET`.
pub(super) fn contain(methods: &[Method], method: &Method) -> bool {
    let is_it =
        |known: &Method| known == method || (known == Method::GET && method == Method::HEAD);
    methods.iter().any(is_it)
}
