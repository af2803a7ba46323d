//! What a node says that does not serve a key: ask there. Nothing ran then, so
//! asking there charges nothing twice.

use std::error::Error;

use super::slots::Address;
use crate::{StoreError, error::StoreErrorKind, store::redis::server::RedisError};

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
        let said = error.source()?.downcast_ref::<RedisError>()?;
        Self::parse(said.details(), slot, asked)
    }

    /// What it means that a redirection is none of these.
    pub(super) fn cannot_be_followed(error: &StoreError) -> StoreError {
        let said = error.source().map(ToString::to_string).unwrap_or_default();
        let cause = format!("its node names nobody who could be asked instead: {said}");
        StoreError::with_source(StoreErrorKind::Refused, cause)
    }

    pub(super) fn parse(said: &str, slot: u16, asked: &Address) -> Option<Self> {
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

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_nodes_name_them() {
        let asked = Address::named("10.0.0.1", "7000", &Address::example()).expect("an address");
        let parse = |said: &str| Redirect::parse(said, 3_999, &asked);
        let to = |host: &str| Address::named(host, "6381", &asked).expect("an address");
        for (said, redirect) in [
            ("MOVED 3999 10.0.0.2:6381", Redirect::Moved(to("10.0.0.2"))),
            ("MOVED 3999 ::1:6381", Redirect::Moved(to("::1"))),
            (
                "ASK 3999 node-2.example:6381",
                Redirect::Ask(to("node-2.example")),
            ),
            ("ASK 3999 :6381", Redirect::Ask(to("10.0.0.1"))),
            ("TRYAGAIN Multiple keys", Redirect::TryAgain),
        ] {
            assert_eq!(parse(said), Some(redirect), "{said}");
        }
        for said in [
            "",
            "MOVED",
            "MOVED 3999",
            "MOVED 3998 10.0.0.2:6381",
            "MOVED 99999 10.0.0.2:6381",
            "MOVED 3999 10.0.0.2",
            "MOVED 3999 10.0.0.2:0",
            "MOVED 3999 10.0.0.2:65536",
            "MOVED 3999 ?:6381",
            "MOVED 3999 a/b:6381",
            "moved 3999 10.0.0.2:6381",
            "NOSCRIPT",
        ] {
            assert_eq!(parse(said), None, "{said}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_said(said in ".*", slot: u16) {
            let _ = Redirect::parse(&said, slot, &Address::example());
            let _ = Redirect::parse(&format!("MOVED {slot} {said}"), slot, &Address::example());
        }
    }
}
