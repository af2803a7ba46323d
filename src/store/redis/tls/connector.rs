//! The TLS of a connection, made by rustls.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use fred::{
    rustls::{
        ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::ring,
        pki_types::{
            CertificateDer, PrivateKeyDer, ServerName, UnixTime,
            pem::{Error as PemError, PemObject},
        },
    },
    rustls_native_certs::load_native_certs,
    types::config::{Config, ServerConfig, TlsConnector},
};

use super::{AUTHORITIES, CLIENT_CERTIFICATE, CLIENT_KEY, SERVER_NAME, TlsSettings, mistake};
use crate::{ConfigError, store::redis::address::unusable, util};

/// The most bytes that are read of a file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// How to connect with TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    settings: TlsSettings,
    trusted: Trusted,
}

/// The authorities that a connection trusts.
#[derive(Clone)]
enum Trusted {
    /// Those of the system, which are read once.
    System(Arc<RootCertStore>),
    File(PathBuf),
}

impl Tls {
    pub(crate) fn new(settings: &TlsSettings) -> Result<Self, ConfigError> {
        let tls = Self {
            trusted: match &settings.authorities {
                Some(path) => Trusted::File(path.clone()),
                None => Trusted::System(Arc::new(system_authorities()?)),
            },
            settings: settings.clone(),
        };
        tls.connector()?;
        Ok(tls)
    }

    /// Sets up TLS for one connection.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<(), ConfigError> {
        config.tls = Some(self.connector()?.into());
        if let Some(name) = &self.settings.server_name {
            match &mut config.server {
                ServerConfig::Centralized { server } => {
                    server.tls_server_name = Some(name.into());
                }
                ServerConfig::Sentinel { hosts, .. } => {
                    let hosts = hosts.iter_mut();
                    hosts.for_each(|host| host.tls_server_name = Some(name.into()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn connector(&self) -> Result<TlsConnector, ConfigError> {
        let TlsSettings {
            server_name,
            client_certificate,
            client_key,
            ..
        } = &self.settings;
        let roots = match &self.trusted {
            Trusted::System(roots) => Arc::clone(roots),
            Trusted::File(path) => Arc::new(authorities_of(path)?),
        };
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
        let verifier = verifier
            .build()
            .map_err(|error| mistake(AUTHORITIES, error))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?;
        let builder = match server_name {
            None => builder.with_webpki_verifier(verifier),
            Some(name) => {
                let name = ServerName::try_from(name.clone()).map_err(|_| {
                    mistake(
                        SERVER_NAME,
                        format!("{name:?} is not a name; use one such as \"redis.example.com\""),
                    )
                })?;
                let verifier = Arc::new(NamedServer { verifier, name });
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
            }
        };
        let config = match (client_certificate, client_key) {
            (None, None) => builder.with_no_client_auth(),
            (None, Some(_)) => {
                let why = "the certificate of this key is missing; set `tls_client_certificate`";
                return Err(mistake(CLIENT_KEY, why));
            }
            (Some(path), key) => {
                let certificates = certificates_of(CLIENT_CERTIFICATE, path)?;
                let (method, key) = match key {
                    Some(key) => (CLIENT_KEY, key),
                    None => (CLIENT_CERTIFICATE, path),
                };
                let key = key_of(method, key)?;
                let config = builder.with_client_auth_cert(certificates, key);
                config.map_err(|error| {
                    let why = format!("the certificate and its key cannot be used ({error}); use the two files of one certificate");
                    mistake(method, why)
                })?
            }
        };
        Ok(config.into())
    }
}

fn system_authorities() -> Result<RootCertStore, ConfigError> {
    let found = load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        return Err(unusable(format!(
            "no certificate authority was found for TLS: install those of the system \
             (ca-certificates), or name a file of them in `tls_authorities` or SSL_CERT_FILE ({})",
            errors.join("; ")
        )));
    }
    Ok(roots)
}

fn authorities_of(path: &Path) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(AUTHORITIES, path)? {
        let added = roots.add(certificate);
        added.map_err(|error| unreadable(AUTHORITIES, path, error))?;
    }
    Ok(roots)
}

fn certificates_of(
    method: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let pem = read(method, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| unreadable(method, path, error))?;
    match certificates.is_empty() {
        true => Err(unreadable(method, path, "it has no `BEGIN CERTIFICATE`")),
        false => Ok(certificates),
    }
}

fn key_of(method: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let pem = read(method, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        PemError::NoItemsFound => {
            let why = "it has no `BEGIN PRIVATE KEY`, `BEGIN RSA PRIVATE KEY` or \
                       `BEGIN EC PRIVATE KEY`; keys with a passphrase cannot be read";
            unreadable(method, path, why)
        }
        error => unreadable(method, path, error),
    })
}

fn read(method: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    let bytes = util::file::read(path, MAX_FILE_BYTES);
    bytes.map_err(|error| unreadable(method, path, error))
}

fn unreadable(method: &'static str, path: &Path, why: impl fmt::Display) -> ConfigError {
    let path = path.display();
    mistake(
        method,
        format!("cannot read {path} ({why}); name a PEM file that this process can read"),
    )
}

/// Expects one name of every server. The client expects the address that it connects to, which
/// behind Sentinel is the one that a sentinel names.
#[derive(Debug)]
struct NamedServer {
    verifier: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for NamedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Self { verifier, name } = self;
        verifier.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verifier = &self.verifier;
        verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verifier = &self.verifier;
        verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
