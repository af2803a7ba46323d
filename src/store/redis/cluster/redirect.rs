//! What a node says that does not serve a key: ask there. Nothing ran then, so
//! asking there charges nothing twice.

use std::error::Error;

use fred::error::Error as FredError;

use super::slots::Address;
use crate::StoreError;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot is there for good.
    Moved(Address),
    /// The key is there already, or will be: the slot is on its way.
    Ask(Address),
    /// Of the keys of this call, some are still here and some there.
    TryAgain,
}

impl Redirect {
    /// `asked`: who said it.
    pub(super) fn of(error: &StoreError, slot: u16, asked: &Address) -> Option<Self> {
        let said = error.source()?.downcast_ref::<FredError>()?;
        Self::parse(said.details(), slot, asked)
    }

    fn parse(said: &str, slot: u16, asked: &Address) -> Option<Self> {
        let mut words = said.split(' ');
        let word = words.next()?;
        if word == "TRYAGAIN" {
            return Some(Self::TryAgain);
        }
        if !matches!(word, "MOVED" | "ASK") || words.next()?.parse() != Ok(slot) {
            return None;
        }
        let (host, port) = words.next()?.rsplit_once(':')?;
        let address = Address::named(host, port, asked)?;
        Some(if word == "MOVED" {
            Self::Moved(address)
        } else {
            Self::Ask(address)
        })
    }
}
