//! Where a server listens.

use std::fmt;

use crate::ConfigError;

/// The longest name that DNS has.
const MAX_HOST_BYTES: usize = 255;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// An IPv6 address is without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// Returns an address as a node names it. A node that names no host means `asked`, the one
    /// that was asked.
    pub(super) fn checked(host: &str, port: i64, asked: &Self) -> Option<Self> {
        let host = if host.is_empty() { &asked.host } else { host };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if host.len() > MAX_HOST_BYTES || !host.bytes().all(is_host) {
            return None;
        }
        Some(Self {
            host: host.to_owned(),
            port: u16::try_from(port).ok().filter(|port| *port > 0)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Returns the error for a URL that cannot be used.
pub(super) fn unusable(reason: impl fmt::Display) -> ConfigError {
    ConfigError::new("redis-url", format!("unusable Redis URL: {reason}"))
}
