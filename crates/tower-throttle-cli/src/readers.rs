//! Stand-ins for the readers that an application registers in code.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use http::Response;
use tower_throttle::{Clock, Key, MemoryStore, RequestHead, key, metrics::Observe, settle};
use tower_throttle_config::{ReaderName, Readers};

use crate::answer::Failure;

/// Registers something under each name: the readers themselves are in the application.
pub(crate) fn stand_ins(names: &[ReaderName]) -> Readers {
    let names = names.iter();
    names.fold(Readers::new(), |readers, ReaderName { kind, name, .. }| {
        add(readers, kind, name)
    })
}

/// Registers what the user says that readers return: `key:tenant=42`.
pub(crate) fn with_values(
    readers: Readers,
    named: &[ReaderName],
    texts: &[String],
) -> Result<Readers, Failure> {
    let mut readers = readers;
    for text in texts {
        let wrong = || {
            Failure::new(format!(
                "--reader: {text:?} is no value of a reader; write KIND:NAME=VALUE"
            ))
        };
        let (reader, value) = text.split_once('=').ok_or_else(wrong)?;
        let (kind, name) = reader.split_once(':').ok_or_else(wrong)?;
        if !named
            .iter()
            .any(|known| known.kind == kind && known.name == name)
        {
            return Err(Failure::new(format!(
                "--reader: the file names no {kind} reader {name:?}"
            )));
        }
        let value = value.to_owned();
        readers = match kind {
            "key" => readers.key(name, move |_: &RequestHead<'_>| Key::from(&value)),
            // The process ends soon.
            "quota" => {
                let tier: &'static str = value.leak();
                readers.quota(name, move |_| Some(tier))
            }
            "when" => {
                let applies = value.parse().map_err(|_| wrong())?;
                readers.when(name, move |_: &RequestHead<'_>| applies)
            }
            "cost" => {
                let cost = value.parse().map_err(|_| wrong())?;
                readers.cost(name, move |_: &RequestHead<'_>| cost)
            }
            _ => return Err(wrong()),
        };
    }
    Ok(readers)
}

fn add(readers: Readers, kind: &str, name: &str) -> Readers {
    match kind {
        // Only the application knows who this is.
        "key" => readers.key(name, |_: &RequestHead<'_>| None::<Key>),
        "quota" => readers.quota(name, |_| None),
        "when" => readers.when(name, |_: &RequestHead<'_>| true),
        "cost" => readers.cost(name, |_: &RequestHead<'_>| 1),
        "settle" => readers.settle(name, settle::failures()),
        "on_denied" => readers.on_denied(name, |_| Response::new("")),
        "observe" => readers.observe(name, Nothing),
        "name_offenders" => readers.name_offenders(name, |_: &RequestHead<'_>| None),
        "headers_when" => readers.headers_when(name, |_, _| true),
        "client_address" => readers.client_address(name, key::peer()),
        "store" => readers.store(name, MemoryStore::new()),
        "clock" => readers.clock(name, Arc::new(WallClock)),
        _ => readers,
    }
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
