//! URLs of Redis, as far as a proxy needs them.

use std::net::SocketAddr;

/// Returns the server's host and port, and the URL with those of the proxy in their place. Returns
/// why there can be no proxy, if so.
pub(crate) fn through_proxy(
    url: &str,
    proxy: SocketAddr,
) -> Result<(String, String), &'static str> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err("The URL names no server.");
    };
    if scheme.contains("cluster") {
        return Err(
            "In a cluster, servers name each other's addresses: there is no place for the demo's own proxy. Start the demo with the URL of one server.",
        );
    }
    if scheme.contains("sentinel") {
        return Err(
            "Sentinels name the address of the server: there is no place for the demo's own proxy. Start the demo with the URL of one server.",
        );
    }
    if scheme != "redis" {
        return Err(
            "The demo's own proxy needs a redis:// URL: with TLS, the certificate names the server and not the proxy.",
        );
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, server) = match authority.rsplit_once('@') {
        Some((user, server)) => (format!("{user}@"), server),
        None => (String::new(), authority),
    };
    let port = server.rsplit_once(':').map(|(_, port)| port);
    let has_port = port.is_some_and(|port| port.parse::<u16>().is_ok());
    let server = match server {
        "" => "127.0.0.1:6379".to_owned(),
        _ if has_port => server.to_owned(),
        _ => format!("{}:6379", server.trim_end_matches(':')),
    };
    Ok((server, format!("redis://{user}{proxy}{path}")))
}
