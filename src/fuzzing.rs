//! The functions that the fuzz targets call: a thin one for each parser of foreign input. Built
//! with `--cfg fuzzing` only, and not part of the API.

#![allow(missing_docs)]

use fred::types::Value;

use crate::{
    ConfigError, Decision, StoreError,
    charge::Check,
    error::StoreErrorKind,
    store::redis::{
        address::Address,
        client_reply::integers_of_value,
        cluster::{redirect::Redirect, slots},
        connect::Access,
        key::KeyNames,
        reply::decode,
        request::{Repeated, ScriptCall, ScriptRequest},
        url::Target,
    },
};

/// Returns the servers of a URL, as `host:port`, and its user and password.
pub fn url(url: &str) -> Result<(Vec<String>, Option<String>, Option<String>), ConfigError> {
    let (settings, seeds) = match Target::of(url, &Access::default())? {
        Target::Node(settings) => (settings, Vec::new()),
        Target::Cluster(settings, seeds) => (settings, seeds),
    };
    let config = settings.config;
    let mut hosts: Vec<_> = seeds.iter().map(ToString::to_string).collect();
    if hosts.is_empty() {
        let servers = config.server.hosts();
        hosts = servers.iter().map(ToString::to_string).collect();
    }
    Ok((hosts, config.username, config.password))
}

/// Decodes the reply to `checks` checks in one call. Each stands for `times` checks that equal
/// `check`.
pub fn reply(
    check: &Check<'_>,
    checks: usize,
    times: u64,
    nonce: i64,
    reply: &Value,
) -> Result<Vec<Result<Decision, StoreError>>, StoreError> {
    let names =
        KeyNames::new("tt".to_owned(), Default::default()).map_err(StoreError::unavailable)?;
    let request = &ScriptRequest::new(check);
    let foreign = |_| StoreError::new(StoreErrorKind::ForeignReply);
    let integers = integers_of_value(reply).map_err(foreign)?;
    let call = ScriptCall {
        checks: &vec![Repeated { request, times }; checks],
        names: &names,
        nonce,
        now_us: 0,
        writes: false,
    };
    let decided = decode(&integers, &call)?.into_iter();
    let decided = decided.map(|result| result.map(|found| request.decision(&found)));
    Ok(decided.collect())
}

fn asked() -> Address {
    Address::new("asked.example", 7_000)
}

/// First and last slot, and `host:port`.
pub fn slots(reply: Value) -> Result<Vec<(u16, u16, String)>, StoreError> {
    let ranges = slots::parse(reply.into(), &asked())?;
    let ranges = ranges.into_iter();
    Ok(ranges
        .map(|(slots, address)| (*slots.start(), *slots.end(), address.to_string()))
        .collect())
}

/// The word and, except for TRYAGAIN, `host:port`.
pub fn redirect(message: &str, slot: u16) -> Option<(&'static str, Option<String>)> {
    Some(match Redirect::parse(message, slot, &asked())? {
        Redirect::Moved(address) => ("MOVED", Some(address.to_string())),
        Redirect::Ask(address) => ("ASK", Some(address.to_string())),
        Redirect::TryAgain => ("TRYAGAIN", None),
    })
}

/// Reads the text of a control document, and writes it again.
pub fn control_document(text: &[u8]) -> Result<Vec<u8>, String> {
    crate::control::write_again(text)
}
