//! Tables for what is read from a request: addresses, keys, conditions, listed callers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Reader, Text, Texts, True, words::words};

/// The client's address behind trusted proxies.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ClientIp {
    /// The addresses and ranges of your proxies. `loopback`, `linklocal` and `uniquelocal` are ranges,
    /// too, and `unix:` is a proxy on a Unix socket.
    pub(crate) trusted: Vec<Text>,
    /// The header that your proxies write. Default: `x_forwarded_for`.
    pub(crate) header: Option<ProxyHeader>,
    /// How many bits of an IPv6 address make one caller. Default: 64.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) ipv6_prefix: Option<u8>,
}

words! {
    enum ProxyHeader {
        /// The header `X-Forwarded-For`.
        XForwardedFor = "x_forwarded_for",
        /// The header `Forwarded`.
        Forwarded = "forwarded",
        /// The header `X-Real-IP`.
        XRealIp = "x_real_ip",
        /// Another header with addresses.
        Header(String = "NAME") = "header:",
        /// Another header with an address and a port, even if IPv6 is not in brackets.
        HeaderWithPort(String = "NAME") = "header_with_port:",
    }
}

/// The address of the connection.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Peer {
    /// How many bits of an IPv6 address make one caller. Default: 64.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) ipv6_prefix: Option<u8>,
}

/// An address with a prefix of its own.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Address {
    /// How many bits of an IPv6 address make one caller.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) ipv6_prefix: u8,
}

/// The key that identifies the caller. In a list, the first key that the request has counts.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Key {
    Word(KeyWord),
    FirstOf(Vec<Self>),
    Table(KeyTable),
}

words! {
    enum KeyWord {
        /// The address of the connection.
        Peer = "peer",
        /// The client's address behind the proxies of `[client_ip]`.
        ClientIp = "client_ip",
        /// The value of a header.
        Header(String = "NAME") = "header:",
        /// The token of the header `Authorization`.
        BearerToken = "bearer_token",
        /// The value of a cookie.
        Cookie(String = "NAME") = "cookie:",
        /// The route that axum matched.
        Route = "route",
        /// The method of the request.
        Method = "method",
        /// One key for all requests.
        Global = "global",
        /// What a reader of the application returns.
        Reader(String = "NAME") = "reader:",
    }
}

/// A key of several parts, or an address with settings of its own.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [
    { "required": ["all"] }, { "required": ["client_ip"] }, { "required": ["peer"] }
]))]
pub(crate) struct KeyTable {
    /// Keys that make one key together.
    pub(crate) all: Option<Vec<Key>>,
    /// `client_ip` with another prefix.
    pub(crate) client_ip: Option<Address>,
    /// `peer` with another prefix.
    pub(crate) peer: Option<Address>,
}

/// Conditions on a request. All of them must hold. A list holds if one of its values does.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct When {
    /// Methods such as `GET`, which includes `HEAD`.
    pub(crate) method: Option<Texts>,
    /// Paths. `*` stands for a part between slashes, `**` for any number of them.
    pub(crate) path: Option<Texts>,
    /// Routes as axum declares them, such as `/users/{id}`.
    pub(crate) route: Option<Texts>,
    /// Names of the requested host.
    pub(crate) host: Option<Texts>,
    /// Headers with one of these values, or with `true` for any value.
    #[schemars(title = "a table with a name for each header")]
    pub(crate) header: Option<BTreeMap<String, HeaderValue>>,
    /// Conditions that must not all hold.
    pub(crate) not: Option<Box<Self>>,
    /// A condition that the application registers.
    pub(crate) reader: Option<Reader>,
}

/// The values of a header.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum HeaderValue {
    Any(#[expect(dead_code, reason = "it has no other value")] True),
    OneOf(Texts),
}

/// Callers that are not limited, and callers that are denied.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Lists {
    /// Addresses and ranges that are not limited. Default: none.
    pub(crate) allow_ips: Option<Vec<Text>>,
    /// Addresses and ranges that are denied. Default: none.
    pub(crate) deny_ips: Option<Vec<Text>>,
    /// Keys that a policy does not limit: for the name of each policy, texts or numbers. Default:
    /// none.
    pub(crate) allow_keys: Option<ListedKeys>,
    /// Keys that are denied: for the name of each policy, texts or numbers. Default: none.
    pub(crate) deny_keys: Option<ListedKeys>,
    /// A file with more entries, one on each line. Its path is relative to the folder of this file.
    /// Default: none.
    pub(crate) file: Option<Text>,
    /// The reader of the client's address. Default: `client_ip` if there is a table `[client_ip]`,
    /// otherwise `peer`.
    pub(crate) client_address: Option<ClientAddress>,
}

/// The keys of each policy.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "a table with a list of keys for each policy")]
pub(crate) struct ListedKeys(pub(crate) BTreeMap<String, Vec<ListedKey>>);

/// A key on a list.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ListedKey {
    Text(Text),
    Number(u64),
}

words! {
    enum ClientAddress {
        /// The client's address behind the proxies of `[client_ip]`.
        ClientIp = "client_ip",
        /// The address of the connection.
        Peer = "peer",
        /// What a reader of the application returns.
        Reader(String = "NAME") = "reader:",
    }
}
