//! Asks the owner of a slot, and follows redirects to the node that it names instead.

use std::{error::Error, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Cluster, topology::Member};
use crate::{
    StoreError,
    error::StoreErrorKind,
    store::redis::{SendMode, address::Address, client_reply::RedisError, dispatcher::Dispatcher},
};

/// A check that was redirected more often has failed.
const MAX_REDIRECTIONS: u32 = 5;
/// Multiplied by the square of the number of redirections: 25 ms in all.
const PAUSE: Duration = Duration::from_micros(500);

/// Returns the error of a call on one key, which is never on both nodes.
pub(super) fn unsplittable(error: StoreError) -> StoreError {
    match error.is_redirected() {
        true => StoreError::not_sent("the slot is being moved"),
        false => error,
    }
}

/// The reply of a node that does not serve a key: ask there. Nothing ran, so asking there
/// charges nothing twice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot has another owner.
    Moved(Address),
    /// The slot is being moved, and a key of this call is there already, or will be.
    Ask(Address),
    /// Of the keys of this call, some are still here and some there.
    TryAgain,
}

impl Redirect {
    /// `asked`: the node that replied.
    pub(crate) fn parse(reply: &str, slot: u16, asked: &Address) -> Option<Self> {
        let mut words = reply.split(' ');
        let word = words.next()?;
        if word == "TRYAGAIN" {
            return Some(Self::TryAgain);
        }
        if !matches!(word, "MOVED" | "ASK") || words.next()?.parse() != Ok(slot) {
            return None;
        }
        let (host, port) = words.next()?.rsplit_once(':')?;
        let address = Address::checked(host, port.parse().ok()?, asked)?;
        Some(if word == "MOVED" {
            Self::Moved(address)
        } else {
            Self::Ask(address)
        })
    }
}

impl Cluster {
    /// Sends to the owner of a slot, and on to the node that it names: only where nothing
    /// ran. Fails as redirected if the slot is being moved, and its keys are on both nodes.
    pub(super) async fn follow<T, F>(
        &self,
        slot: u16,
        deadline: Instant,
        send: impl Fn(Arc<Dispatcher>, SendMode) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut to = self.owner(slot, deadline).await?;
        let mut mode = SendMode::Batched;
        for redirections in 0..=MAX_REDIRECTIONS {
            if redirections > 2 {
                // Nodes that name each other will agree in a moment.
                let pause = Instant::now() + PAUSE * redirections.pow(2);
                sleep_until(deadline.min(pause)).await;
            }
            let error = match send(Arc::clone(&to.dispatcher), mode).await {
                Ok(done) => return Ok(done),
                Err(error) => to.dispatcher.server.with_server(error),
            };
            let cause = RedisError::of(&error).map(|error| &*error.0);
            let redirect = cause.and_then(|cause| Redirect::parse(cause, slot, &to.address));
            let next = match redirect {
                Some(Redirect::Moved(address)) => {
                    mode = SendMode::Batched;
                    self.record_move(slot, &address)
                }
                // The other checks of the batch may be the cause, or the shadows. Before Redis 7, a
                // node replies ASK even if it lacks only some of the keys. At the other node, a
                // check would then find the keys that are here empty.
                Some(Redirect::Ask(_) | Redirect::TryAgain) if mode == SendMode::Batched => {
                    mode = SendMode::Alone;
                    Some(to)
                }
                Some(Redirect::Ask(address)) => {
                    mode = SendMode::Asking;
                    self.member(&address)
                }
                Some(Redirect::TryAgain) => return Err(error),
                None => {
                    if error.is_redirected() || error.is_no_answer() {
                        self.request_refresh();
                    }
                    let error = without_redirect(error);
                    return Err(to.dispatcher.server.with_server(error));
                }
            };
            to = next.ok_or_else(|| StoreError::not_sent("the cluster has too many nodes"))?;
        }
        self.request_refresh();
        Err(StoreError::not_sent(
            "too many redirections, and no node served the slot",
        ))
    }

    /// Returns the owner of a slot. Waits for the first slot map.
    pub(super) async fn owner(
        &self,
        slot: u16,
        deadline: Instant,
    ) -> Result<Arc<Member>, StoreError> {
        if let Some(owner) = self.known_owner(slot) {
            return Ok(owner);
        }
        let mut refreshes = self.refreshes.subscribe();
        let is_first_under_way = refreshes.borrow().is_none();
        if is_first_under_way {
            let no_room = |_| StoreError::not_sent("too many checks wait for the first slot map");
            let _room = self.room.try_acquire().map_err(no_room)?;
            let latest = deadline.min(self.first_map_deadline);
            let first = refreshes.wait_for(Option::is_some);
            // A timeout of no time takes a millisecond.
            if latest <= Instant::now() || timeout_at(latest, first).await.is_err() {
                return Err(StoreError::not_sent("the cluster has not been found yet"));
            }
        }
        if let Some(owner) = self.known_owner(slot) {
            return Ok(owner);
        }
        self.request_refresh();
        Err(match &*refreshes.borrow() {
            // No node was asked about the slot.
            Some(Err(error)) => error.clone().before_sending(),
            _ => StoreError::not_sent("no node of the cluster serves the slot"),
        })
    }
}

/// Returns the error to report: a redirection that cannot be followed is a refusal.
fn without_redirect(error: StoreError) -> StoreError {
    if !error.is_redirected() {
        return error;
    }
    let reply = error.source().map(ToString::to_string).unwrap_or_default();
    let cause = format!("unusable cluster redirection: {reply}");
    StoreError::with_source(StoreErrorKind::Refused, cause)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_nodes_write_them() {
        let asked = Address::checked("10.0.0.1", 7_000, &Address::new("asked.example", 7_000))
            .expect("an address");
        let parse = |message: &str| Redirect::parse(message, 3_999, &asked);
        let to = |host: &str| Address::checked(host, 6_381, &asked).expect("an address");
        for (message, redirect) in [
            ("MOVED 3999 10.0.0.2:6381", Redirect::Moved(to("10.0.0.2"))),
            ("MOVED 3999 ::1:6381", Redirect::Moved(to("::1"))),
            (
                "ASK 3999 node-2.example:6381",
                Redirect::Ask(to("node-2.example")),
            ),
            ("ASK 3999 :6381", Redirect::Ask(to("10.0.0.1"))),
            ("TRYAGAIN Multiple keys", Redirect::TryAgain),
        ] {
            assert_eq!(parse(message), Some(redirect), "{message}");
        }
        for message in [
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
            assert_eq!(parse(message), None, "{message}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_redirection_is_parsed_without_panic(message in ".*", slot: u16) {
            let _ = Redirect::parse(&message, slot, &Address::new("asked.example", 7_000));
            let _ = Redirect::parse(&format!("MOVED {slot} {message}"), slot, &Address::new("asked.example", 7_000));
        }
    }
}
