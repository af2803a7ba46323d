//! See the fuzzing of the store.

#![allow(missing_docs)]

use fred::types::Value;

use super::{redirect::Redirect, slots};
use crate::{StoreError, store::redis::address::Address};

fn asked() -> Address {
    Address::new("asked.example", 7_000)
}

/// First and last slot, and `host:port`.
pub fn slots(reply: Value) -> Result<Vec<(u16, u16, String)>, StoreError> {
    let ranges = slots::parse(reply.into(), &asked())?;
    let parts = |range: slots::Range| (range.first, range.last, range.address.to_string());
    Ok(ranges.into_iter().map(parts).collect())
}

/// The word and, but for TRYAGAIN, `host:port`.
pub fn redirect(said: &str, slot: u16) -> Option<(&'static str, Option<String>)> {
    Some(match Redirect::parse(said, slot, &asked())? {
        Redirect::Moved(address) => ("MOVED", Some(address.to_string())),
        Redirect::Ask(address) => ("ASK", Some(address.to_string())),
        Redirect::TryAgain => ("TRYAGAIN", None),
    })
}
