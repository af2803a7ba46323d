//! TLS: whom a connection trusts, the name it expects, and the certificate it shows.
//!
//! The files are read when the store is built, which reports mistakes, and again for each connection:
//! certificates are renewed while a process runs.

#[cfg(feature = "redis-rustls")]
mod connector;
mod sentences;

use std::{fmt, path::PathBuf};

#[cfg(feature = "redis-rustls")]
pub(super) use self::connector::Tls;
pub(super) use self::sentences::explained;
#[cfg(not(feature = "redis-rustls"))]
use super::address::unusable;
use crate::ConfigError;

/// The settings, as the builder got them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(super) authorities: Option<PathBuf>,
    pub(super) server_name: Option<String>,
    pub(super) client_certificate: Option<PathBuf>,
    /// The file of the certificate if it is `None`.
    pub(super) client_key: Option<PathBuf>,
}

impl TlsSettings {
    /// Returns the first method of the builder that set something.
    fn first(&self) -> Option<&'static str> {
        let set = [
            (AUTHORITIES, self.authorities.is_some()),
            (SERVER_NAME, self.server_name.is_some()),
            (CLIENT_KEY, self.client_key.is_some()),
            (CLIENT_CERTIFICATE, self.client_certificate.is_some()),
        ];
        set.iter()
            .find(|(_, is_set)| *is_set)
            .map(|(name, _)| *name)
    }

    /// Checks that there are no settings, for a URL without TLS.
    pub(super) fn check_unused(&self) -> Result<(), ConfigError> {
        let Some(method) = self.first() else {
            return Ok(());
        };
        let why = "the URL does not ask for TLS; write rediss:// (or rediss-cluster://, \
                   rediss-sentinel://), or drop the setting";
        Err(mistake(method, why))
    }
}

const AUTHORITIES: &str = "tls_authorities";
const SERVER_NAME: &str = "tls_server_name";
const CLIENT_CERTIFICATE: &str = "tls_client_certificate";
const CLIENT_KEY: &str = "tls_client_key";

/// Returns the error of a setting.
fn mistake(method: &'static str, why: impl fmt::Display) -> ConfigError {
    ConfigError::new("redis-tls", format!("`{method}`: {why}")).with_subject(method)
}

/// There is no TLS without the feature.
#[cfg(not(feature = "redis-rustls"))]
#[derive(Clone)]
pub(crate) enum Tls {}

#[cfg(not(feature = "redis-rustls"))]
impl Tls {
    pub(super) fn new(_: &TlsSettings) -> Result<Self, ConfigError> {
        let why = "TLS needs the feature `redis-rustls`, or a client of your own (feature `redis-client`)";
        Err(unusable(why))
    }
}
