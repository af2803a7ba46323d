//! Stand-ins for the readers that an application registers in code.

use std::{
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use http::Response;
use tower_throttle::{
    Clock, Key, MemoryStore, RequestHead, control::Caller, key, metrics::Observe, settle,
};
use tower_throttle_config::{Config, ReaderName, Readers};

use crate::error::Result;

/// Parses `key:tenant`.
pub(crate) fn parse_name(text: &str) -> Result<ReaderName, String> {
    let name = text
        .split_once(':')
        .and_then(|(kind, name)| ReaderName::new(kind, name));
    let kinds = ReaderName::KINDS.join(", ");
    name.ok_or_else(|| format!("write KIND:NAME with one of {kinds}"))
}

/// Parses `key:tenant=42`: a reader, and the value that it returns.
pub(crate) fn parse_value(text: &str) -> Result<(ReaderName, String), String> {
    let (name, value) = text.split_once('=').ok_or("write KIND:NAME=VALUE")?;
    Ok((parse_name(name)?, value.to_owned()))
}

/// Returns the key that a reader returns, in the words in which other commands name its caller.
pub(crate) fn key_of(value: &str) -> Result<Key> {
    let caller = Caller::parse(&[value]).map_err(|error| format!("--reader: {error}"))?;
    let key = caller.key();
    Ok(key.ok_or("--reader: write the key itself, and no part of a request")?)
}

/// Reads a file, with stand-ins for the readers that it names: only the application has them.
pub(crate) fn read_file(path: &Path, values: &[(ReaderName, String)]) -> Result<Config> {
    let config = Config::from_path(path)?;
    let readers = stand_ins(&config.reader_names(), values)?;
    Ok(config.readers(readers))
}

/// Registers something under each name, which returns the value if there is one.
pub(crate) fn stand_ins(names: &[ReaderName], values: &[(ReaderName, String)]) -> Result<Readers> {
    if let Some((unknown, _)) = values.iter().find(|(name, _)| !names.contains(name)) {
        let ReaderName { kind, name, .. } = unknown;
        return Err(format!("--reader: the file names no {kind} reader {name:?}").into());
    }
    names.iter().try_fold(Readers::new(), |readers, name| {
        let value = values.iter().rfind(|(known, _)| known == name);
        add(readers, name, value.map(|(_, value)| &**value))
    })
}

fn add(readers: Readers, reader: &ReaderName, value: Option<&str>) -> Result<Readers> {
    let ReaderName { kind, name, .. } = reader;
    let wrong = || format!("--reader: {kind}:{name} cannot return {value:?}");
    Ok(match (*kind, value) {
        // Without a value, only the application knows who this is.
        ("key", _) => {
            let key = value.map(key_of).transpose()?;
            readers.key(name, move |_: &RequestHead<'_>| key.clone())
        }
        ("quota", _) => {
            // The process ends soon.
            let tier: Option<&'static str> = value.map(|tier| &*tier.to_owned().leak());
            readers.quota(name, move |_| tier)
        }
        ("when", _) => {
            let applies = value.map_or(Ok(true), str::parse).map_err(|_| wrong())?;
            readers.when(name, move |_: &RequestHead<'_>| applies)
        }
        ("cost", _) => {
            let cost = value.map_or(Ok(1), str::parse).map_err(|_| wrong())?;
            readers.cost(name, move |_: &RequestHead<'_>| cost)
        }
        (_, Some(_)) => return Err(wrong().into()),
        ("settle", _) => readers.settle(name, settle::failures()),
        ("on_denied", _) => readers.on_denied(name, |_| Response::new("")),
        ("observe", _) => readers.observe(name, Nothing),
        ("name_offenders", _) => readers.name_offenders(name, |_: &RequestHead<'_>| None),
        ("headers_when", _) => readers.headers_when(name, |_, _| true),
        ("client_address", _) => readers.client_address(name, key::peer()),
        ("store", _) => readers.store(name, MemoryStore::new()),
        ("clock", _) => readers.clock(name, Arc::new(WallClock)),
        _ => readers,
    })
}

#[derive(Debug)]
struct WallClock;

impl Clock for WallClock {
    fn now_us(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let us = since_epoch.unwrap_or_default().as_micros();
        u64::try_from(us).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
struct Nothing;

impl Observe for Nothing {}
