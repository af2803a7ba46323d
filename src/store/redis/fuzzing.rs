//! What the fuzz targets call: a thin function for each parser of what others
//! say. Built with `--cfg fuzzing` only, and no part of the API.

#![allow(missing_docs)]

use fred::types::Value;

pub use super::cluster::fuzzing::{redirect, slots};
use super::{
    key::KeyNames,
    question::{Question, Turns},
    reply::read,
    server::integers_of_value,
    url::Target,
};
use crate::{ConfigError, Decision, StoreError, charge::Check, error::StoreErrorKind};

/// What a URL says.
#[derive(Debug)]
pub struct Read {
    /// As `host:port`.
    pub hosts: Vec<String>,
    pub user: Option<String>,
    pub password: Option<String>,
}

pub fn url(url: &str) -> Result<Read, ConfigError> {
    let (settings, seeds) = match Target::of(url)? {
        Target::Node(settings) => (settings, Vec::new()),
        Target::Cluster(settings, seeds) => (settings, seeds),
    };
    let said = settings.said();
    let mut hosts: Vec<_> = seeds.iter().map(ToString::to_string).collect();
    if hosts.is_empty() {
        hosts = said.hosts;
    }
    Ok(Read {
        hosts,
        user: said.user,
        password: said.password,
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
