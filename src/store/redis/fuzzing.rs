//! What the fuzz targets call: a thin function for each parser of what others
//! say. Built with `--cfg fuzzing` only, and no part of the API.

#![allow(missing_docs)]

use fred::types::{Value, config::ServerConfig};

pub use super::cluster::fuzzing::{redirect, slots};
use super::{
    call::integers_of_value,
    key::KeyNames,
    question::{Question, Turns},
    reply::read,
    url::Target,
};
use crate::{ConfigError, Decision, StoreError, error::StoreErrorKind, store::Check};

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

/// The reply to `checks` checks like this one, each asked for `times` times in a
/// row, in one call.
pub fn reply(
    check: &Check<'_>,
    checks: usize,
    times: u64,
    nonce: i64,
    reply: &Value,
) -> Result<Vec<Decided>, StoreError> {
    let names = KeyNames::new("tt".to_owned(), None).map_err(StoreError::unavailable)?;
    let question = &Question::new(check, &names);
    let foreign = |_| StoreError::new(StoreErrorKind::ForeignReply);
    let integers = integers_of_value(reply).map_err(foreign)?;
    let parts = read(&integers, nonce, &vec![Turns { question, times }; checks])?;
    let mut decided = Vec::new();
    for part in parts {
        let found = part.one_by_one(question);
        decided.extend(found.map(|found| Ok(question.decision(&found?))));
    }
    Ok(decided)
}
