//! What a URL says: where to connect, and as whom.

use fred::types::config::{Config, ServerConfig};

use super::cluster::Address;
use crate::ConfigError;

/// What to connect to.
pub(super) enum Target {
    Node(Config),
    /// Nodes to ask for the others. Their settings hold for all.
    Cluster(Config, Vec<Address>),
}

impl Target {
    pub(super) fn of(url: &str) -> Result<Self, ConfigError> {
        let (scheme, address) = url
            .split_once("://")
            .ok_or_else(|| unusable("it has no scheme; write redis://host:port/database"))?;
        let (kind, is_cluster) = match scheme.strip_suffix("-cluster") {
            Some(kind) => (kind, true),
            None => (scheme, false),
        };
        let is_tls = match kind {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => {
                return Err(unusable(format!(
                    "the scheme {scheme:?} is none of redis, rediss, valkey, valkeys, nor one of \
                     them with -cluster"
                )));
            }
        };
        let (mut config, seeds) = if is_cluster {
            cluster(address)?
        } else {
            (node(address)?, Vec::new())
        };
        if is_tls {
            use_tls(&mut config)?;
        }
        Ok(if is_cluster {
            Self::Cluster(config, seeds)
        } else {
            Self::Node(config)
        })
    }
}

/// `user:password@host:port,host:port/?node=host:port`.
fn cluster(address: &str) -> Result<(Config, Vec<Address>), ConfigError> {
    let (address, query) = address.split_once('?').unwrap_or((address, ""));
    let (authority, database) = address.split_once('/').unwrap_or((address, ""));
    if !matches!(database, "" | "0") {
        return Err(unusable("a cluster has one database: leave it out"));
    }
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let others = query.split('&').filter(|part| !part.is_empty());
    let others = others.map(|part| {
        part.strip_prefix("node=")
            .ok_or_else(|| unusable("its query may only hold node=host:port"))
    });
    let mut seeds = Vec::new();
    let mut first = None;
    for host in hosts.split(',').map(Ok).chain(others) {
        let config = node(&format!("{user}@{}/", host?))?;
        if let ServerConfig::Centralized { server } = &config.server {
            let seed = Address::of(server);
            if !seeds.contains(&seed) {
                seeds.push(seed);
            }
        }
        first.get_or_insert(config);
    }
    let config = first.ok_or_else(|| unusable("it has no host"))?;
    Ok((config, seeds))
}

/// The scheme is dropped here: TLS is set up below, with a provider chosen
/// by name, where the client would panic if the application enables two.
fn node(address: &str) -> Result<Config, ConfigError> {
    Config::from_url_centralized(&format!("redis://{address}")).map_err(|error| mistake(&error))
}

/// The same settings for another server.
pub(super) fn elsewhere(config: &Config, address: &Address) -> Config {
    let mut config = config.clone();
    config.server = ServerConfig::Centralized {
        server: address.server(),
    };
    config
}

#[cfg(feature = "redis-rustls")]
fn use_tls(config: &mut Config) -> Result<(), ConfigError> {
    use fred::{
        rustls::{ClientConfig, RootCertStore, crypto::ring},
        rustls_native_certs::load_native_certs,
        types::config::TlsConnector,
    };

    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(load_native_certs().certs);
    let client = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.tls = Some(TlsConnector::from(client).into());
    Ok(())
}

#[cfg(not(feature = "redis-rustls"))]
fn use_tls(_: &mut Config) -> Result<(), ConfigError> {
    Err(unusable(
        "TLS needs the feature `redis-rustls`, or a client of your own",
    ))
}

/// The details never hold the URL: it has a password in it.
pub(super) fn mistake(error: &fred::error::Error) -> ConfigError {
    unusable(error.details())
}

fn unusable(reason: impl Into<String>) -> ConfigError {
    ConfigError::RedisUrl {
        reason: reason.into(),
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    fn seeds(url: &str) -> (Config, Vec<String>) {
        match Target::of(url).expect("a usable URL") {
            Target::Cluster(config, seeds) => {
                (config, seeds.iter().map(Address::to_string).collect())
            }
            Target::Node(_) => panic!("a cluster"),
        }
    }

    #[test]
    fn both_ways_to_name_several_nodes() {
        let (config, named) = seeds("redis-cluster://app:p%40w@one:1,two,[::1]:3/");
        assert_eq!(named, ["one:1", "two:6379", "::1:3"]);
        assert_eq!(config.username.as_deref(), Some("app"));
        assert_eq!(config.password.as_deref(), Some("p@w"));

        let (_, named) = seeds("valkey-cluster://one:1?node=two:2&node=one:1&node=three:3");
        assert_eq!(named, ["one:1", "two:2", "three:3"]);
    }

    #[test]
    fn what_cannot_be_used_is_said_without_the_password() {
        for url in [
            "redis-cluster://",
            "redis-cluster://app:secret@/",
            "redis-cluster://app:secret@one:1,,two:2/",
            "redis-cluster://app:secret@one:99999/",
            "redis-cluster://app:secret@one/1",
            "redis-cluster://app:secret@one/?nodes=two",
            "redis-sentinel://app:secret@one/",
            "redis-cluster-cluster://app:secret@one/",
        ] {
            let mistake = Target::of(url).err().expect(url);
            assert!(!mistake.to_string().contains("secret"), "{mistake}");
        }
    }
}
