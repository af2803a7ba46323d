//! Settles what a request holds: asks the settlers of its policies when the head of the response
//! has arrived, and some of them again at the end.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Buf;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body::Frame;
use smallvec::SmallVec;

use super::{
    settings::Settings,
    settle::outcome::{Outcome, Settle},
};
use crate::{
    Decision, Hold,
    admission::refund::HeldPermits,
    holds::{Holds, Settlement},
    policy::Compiled,
    telemetry,
};

/// What an admitted request has taken, until its response has ended.
#[derive(Debug)]
pub(super) struct Taken {
    /// Releases permits when it is dropped.
    permits: HeldPermits,
    /// Boxed, because few requests have one, and all others would copy its place.
    settling: Option<Box<Settling>>,
}

impl Taken {
    /// Returns `None` if nothing is left to do when the response has ended.
    pub(super) fn new(permits: HeldPermits, settling: Option<Box<Settling>>) -> Option<Box<Self>> {
        (!permits.is_empty() || settling.is_some()).then(|| Box::new(Self { permits, settling }))
    }

    /// Settles what can be settled by the head of the response, and corrects `decision`, whose
    /// header fields the response gets. Returns what is left for the body.
    pub(super) fn at_head<B>(
        mut self: Box<Self>,
        response: &Response<B>,
        decision: &mut Decision,
    ) -> Option<Box<Self>> {
        if let Some(settling) = &mut self.settling {
            settling.at_head(response, decision);
            if settling.open.is_empty() {
                self.settling = None;
            }
        }
        (!self.permits.is_empty() || self.settling.is_some()).then_some(self)
    }

    /// Records what a poll of the body has returned. `is_over`: nothing follows.
    pub(super) fn polled<D: Buf, E>(&mut self, frame: Option<&Result<Frame<D>, E>>, is_over: bool) {
        if let Some(settling) = &mut self.settling {
            settling.seen.polled(frame, is_over);
        }
    }

    /// Records that the body has reported its end. The server then drops it.
    pub(super) fn is_over(&self) {
        if let Some(settling) = &self.settling {
            settling.seen.is_complete.store(true, Ordering::Relaxed);
        }
    }
}

/// The units that a request holds, and the settlers to ask about them.
///
/// When it is dropped, it asks the settlers that have not answered yet, with all that is known by
/// then. So every way to the end of a request settles it.
#[derive(Debug)]
pub(super) struct Settling {
    holds: Holds,
    settings: Arc<Settings>,
    /// Which rules' settlers are asked next.
    open: SmallVec<[usize; 2]>,
    is_head_request: bool,
    seen: Seen,
}

impl Settling {
    /// Gives the handler a [`Hold`], if a policy of the layer settles. A request that holds nothing
    /// gets one, too, because its handler is the same. `None`: nothing is to be settled.
    pub(super) fn new<B>(
        settings: &Arc<Settings>,
        holds: Option<Holds>,
        request: &mut Request<B>,
    ) -> Option<Box<Self>> {
        if !settings.settles {
            return None;
        }
        let hold = Hold::new(holds.clone(), request.extensions().get());
        request.extensions_mut().insert(hold);
        let mut settling = Self::without_request(settings, holds?);
        settling.is_head_request = request.method() == Method::HEAD;
        Some(Box::new(settling))
    }

    /// Settles what is held of a request that was dropped before it reached a handler.
    pub(super) fn without_request(settings: &Arc<Settings>, holds: Holds) -> Self {
        let rules = settings.rules().enumerate();
        let open = rules.filter(|(_, rule)| {
            rule.policy.settles && holds.units(&rule.policy.name.text).is_some()
        });
        Self {
            open: open.map(|(index, _)| index).collect(),
            settings: Arc::clone(settings),
            holds,
            is_head_request: false,
            seen: Seen::default(),
        }
    }

    /// Settles what shadow policies hold of a request that is denied.
    pub(super) fn denied<B>(settings: &Arc<Settings>, holds: Holds, denial: &Response<B>) {
        let mut settling = Self::without_request(settings, holds);
        settling.ask(|held| Outcome {
            is_end: true,
            ..Outcome::at_head(denial, held)
        });
    }

    fn at_head<B>(&mut self, response: &Response<B>, decision: &mut Decision) {
        self.ask(|held| Outcome::at_head(response, held));
        for own in &*self.settings.engine.policies {
            let policy = &*own.name.text;
            let Some(settlement) = self.holds.settled(policy) else {
                continue;
            };
            let used = settlement.units(self.holds.units(policy).unwrap_or(0));
            decision.settle(policy, used, own.debt);
        }
        if !self.open.is_empty() {
            self.seen = Seen::at_head(response, self.is_head_request);
        }
    }

    /// Asks the settlers that are open. A settler that asks to run at the end stays open.
    fn ask<'a>(&mut self, outcome: impl Fn(u64) -> Outcome<'a>) {
        let mut is_unread = false;
        for index in mem::take(&mut self.open) {
            let rule = self.settings.rules().nth(index);
            let rule = rule.and_then(|rule| Some((rule, rule.readers.given.settle_by.as_ref()?)));
            let Some((rule, settler)) = rule else {
                continue;
            };
            let policy = &*rule.policy.name.text;
            // The handler was first.
            if self.holds.settled(policy).is_some() {
                continue;
            }
            let unread = OnceLock::new();
            let outcome = outcome(self.holds.units(policy).unwrap_or(0)).reporting(&unread);
            // A panic must not leave `drop`.
            let answer = catch_unwind(AssertUnwindSafe(|| settler.0.settle(&outcome)));
            let settlement = match answer {
                Ok(Settle::Full) => Settlement::Full,
                Ok(Settle::Release) => Settlement::Release,
                Ok(Settle::Units(units)) => Settlement::Units(units),
                Ok(Settle::AtEnd) => {
                    // At the end, the last of the handles settles.
                    if !outcome.is_end() {
                        self.open.push(index);
                    }
                    continue;
                }
                Err(_) => {
                    telemetry::settler_panicked(policy);
                    Settlement::Full
                }
            };
            if let Some(field) = unread.get() {
                telemetry::unread_cost(policy, field);
                is_unread = true;
            }
            self.holds.settle(policy, settlement);
        }
        if is_unread {
            self.settings.engine.recorder.cost_unread();
        }
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let seen = mem::take(&mut self.seen);
        if !seen.is_complete.load(Ordering::Relaxed) {
            // A client that hangs up gets no strike.
            let policies = &self.settings.engine.policies;
            let is_penalty = |policy: &Compiled| policy.demand.quota.penalty().is_some();
            self.open
                .retain(|index| !policies.get(*index).is_some_and(is_penalty));
        }
        self.ask(|held| seen.outcome(held));
    }
}

/// What is known about a response at its end.
#[derive(Debug, Default)]
struct Seen {
    status: Option<StatusCode>,
    headers: HeaderMap,
    extensions: Extensions,
    trailers: Option<HeaderMap>,
    body_bytes: u64,
    /// The length that the response announces. A server may drop the body after that.
    length: Option<u64>,
    is_complete: AtomicBool,
}

impl Seen {
    fn at_head<B>(response: &Response<B>, is_head_request: bool) -> Self {
        let length = response.headers().get(CONTENT_LENGTH);
        Self {
            status: Some(response.status()),
            headers: response.headers().clone(),
            extensions: response.extensions().clone(),
            length: length.and_then(|length| length.to_str().ok()?.parse().ok()),
            // A server drops the body of a response to HEAD.
            is_complete: AtomicBool::new(is_head_request),
            ..Self::default()
        }
    }

    fn polled<D: Buf, E>(&mut self, frame: Option<&Result<Frame<D>, E>>, is_over: bool) {
        let mut is_complete = is_over;
        match frame {
            None => is_complete = true,
            Some(Err(_)) => is_complete = false,
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.body_bytes = self.body_bytes.saturating_add(data.remaining() as u64);
                    is_complete |= Some(self.body_bytes) == self.length;
                } else if let Some(trailers) = frame.trailers_ref() {
                    self.trailers = Some(trailers.clone());
                    is_complete = true;
                }
            }
        }
        *self.is_complete.get_mut() = is_complete;
    }

    fn outcome(&self, held: u64) -> Outcome<'_> {
        Outcome {
            status: self.status,
            headers: &self.headers,
            extensions: &self.extensions,
            trailers: self.trailers.as_ref(),
            body_bytes: self.body_bytes,
            is_complete: self.is_complete.load(Ordering::Relaxed),
            is_end: true,
            held,
            unread: None,
        }
    }
}
