//! [`Call`]: whose limits a call counts against.

use std::{borrow::Cow, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode, header::HOST, uri::Authority};
use tower_throttle::{Buckets, Key, Permit, RequestHead, StoreError, key::Host};

use crate::{
    settings::Settings,
    told::{Refusal, Told},
};

/// A call: its keys, its cost, and its partner.
pub(crate) struct Call {
    settings: Arc<Settings>,
    key: Key,
    /// The keys of the policies that have one of their own, in their order.
    policy_keys: Vec<Key>,
    units: Option<u64>,
    /// The host and port that is called.
    authority: Option<Authority>,
}

impl Call {
    pub(crate) fn new(settings: &Arc<Settings>, head: &RequestHead<'_>) -> Self {
        let policy_keys = settings.policy_keys.iter().map(|(_, key)| key(head));
        let authority = head.uri().authority().cloned();
        let authority = authority.or_else(|| head.headers().get(HOST)?.as_bytes().try_into().ok());
        let partner = || {
            let name = authority.as_ref().map(name);
            name.map_or(Key::everyone(), |name| Key::from(&*name))
        };
        Self {
            key: settings.key.as_ref().map_or_else(partner, |key| key(head)),
            policy_keys: policy_keys.collect(),
            units: settings.cost.as_ref().map(|cost| cost(head)),
            settings: Arc::clone(settings),
            authority,
        }
    }

    /// Waits for room, for at most this time.
    pub(crate) async fn acquire(&self, wait: Duration) -> Result<Permit, StoreError> {
        let limiter = &self.settings.limiter;
        match (self.policy_keys.is_empty(), self.units) {
            (true, None) => limiter.acquire(self.key.clone(), wait).await,
            (true, Some(units)) => limiter.acquire_n(self.key.clone(), units, wait).await,
            (false, None) => self.buckets().acquire(wait).await,
            (false, Some(units)) => self.buckets().acquire_n(units, wait).await,
        }
    }

    pub(crate) fn buckets(&self) -> Buckets {
        let limiter = &self.settings.limiter;
        match self.policy_keys.is_empty() {
            true => limiter.buckets(self.key.clone()),
            false => limiter.buckets_by(|policy| Some(self.key_of(policy))),
        }
    }

    fn key_of(&self, policy: &str) -> Key {
        let own = self.settings.policy_keys.iter().zip(&self.policy_keys);
        let mut own = own.filter(|((name, _), _)| name == policy);
        own.next().map_or(&self.key, |(_, key)| key).clone()
    }

    /// Begins the pauses that a response asks for, and returns whether it is a refusal.
    pub(crate) async fn answered(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Refusal> {
        let settings = &self.settings;
        let told = Told::read(status, headers, &settings.dialects, settings.default_pause)?;
        if !told.unread.is_empty() {
            let partner = self.authority.as_ref().map(name).unwrap_or_default();
            settings.unread.record(&partner, &told.unread, headers);
        }
        for (limit, pause) in told.pauses {
            let Some(paused) = settings.pausing_policy(limit.as_deref()) else {
                break;
            };
            let key = |policy: &str| (policy == paused).then(|| self.key_of(policy));
            let buckets = settings.limiter.buckets_by(key);
            // If the store does not confirm it, this process pauses alone. It is boxed, as few calls
            // need it.
            let _ = Box::pin(buckets.pause(pause.min(settings.longest_pause))).await;
        }
        told.refusal
    }
}

/// Returns the one spelling of a host and its port. Ports 80 and 443 are left out, because they are
/// those of the schemes.
fn name(authority: &Authority) -> Cow<'_, str> {
    let text = authority.as_str();
    let is_plain = |byte: u8| !matches!(byte, b'@' | b':' | b'[' | b'A'..=b'Z');
    if text.bytes().all(is_plain) && !text.ends_with('.') {
        return Cow::Borrowed(text);
    }
    let port = authority
        .port_u16()
        .filter(|port| ![80, 443].contains(port));
    Cow::Owned(match (Host::parse(authority.host()), port) {
        (Some(Host::Address(address)), Some(port)) => SocketAddr::new(address, port).to_string(),
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_string(),
        (None, _) => text.to_ascii_lowercase(),
    })
}
