//! What the fuzz targets call: a thin function for each parser of what others
//! say. Built with `--cfg fuzzing` only, and no part of the API.

#![allow(missing_docs)]

use fred::types::{Value, config::ServerConfig};

pub use super::cluster::fuzzing::{redirect, slots};
use super::{
    reply::Reply,
    script::{AskedLeg, Encoded},
    url::Target,
};
use crate::{ConfigError, Decision, StoreError, store::Check};

/// What a URL says.
#[derive(Debug)]
pub struct Read {
    /// As `host:port`.
    pub hosts: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
}

pub fn url(url: &str) -> Result<Read, ConfigError> {
    let (config, seeds) = match Target::of(url)? {
        Target::Node(config) => (config, Vec::new()),
        Target::Cluster(config, seeds) => (config, seeds),
    };
    let of_config = match &config.server {
        ServerConfig::Centralized { server } => std::slice::from_ref(server),
        ServerConfig::Sentinel { hosts, .. } => hosts,
        ServerConfig::Clustered { .. } => &[],
    };
    let mut hosts: Vec<_> = seeds.iter().map(ToString::to_string).collect();
    if hosts.is_empty() {
        hosts.extend(of_config.iter().map(ToString::to_string));
    }
    Ok(Read {
        hosts,
        user: config.username,
        password: config.password,
    })
}

type Decided = Result<Decision, StoreError>;

/// The reply to `times` checks like this one, sent in one call.
pub fn reply(
    check: &Check<'_>,
    times: usize,
    nonce: i64,
    reply: Value,
) -> Result<Vec<Decided>, StoreError> {
    let legs: Vec<AskedLeg> = check.legs().iter().map(Into::into).collect();
    let keyed = legs.iter().map(|leg| (leg, Value::Null));
    let shape = Encoded::new(check.operation(), 0, keyed).shape;
    let mut reply = Reply::new(reply, nonce, times * shape.integers())?;
    let mut next = || Ok(reply.found(&shape)?.decision(&legs));
    Ok((0..times).map(|_| next()).collect())
}
