//! Which callers send requests, and in which order.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::http::HeaderValue;

pub const MANY: usize = 100_000;
pub const API_KEY: &str = "x-api-key";

/// The step to the next caller is so long that caches cannot predict it. It shares no factor
/// with a round number of callers, so each has its turn.
pub const STEP: usize = 7_919;
/// The largest burst of tower-rate-limit-fred is 65,535.
const HOT_FOR: u64 = 50_000;

/// The order in which callers come.
#[derive(Clone)]
pub enum Callers {
    /// This many callers, each in its turn.
    Each(usize),
    /// All requests come from the same caller until nearly the whole burst is used, and then
    /// from the next one.
    OneAtATime(Arc<AtomicU64>),
}

impl Callers {
    pub fn one_at_a_time() -> Self {
        Self::OneAtATime(Arc::default())
    }

    /// Returns where one of several workers starts: each a part of the way apart.
    pub fn first(&self, worker: usize, workers: usize) -> usize {
        match self {
            Self::Each(callers) => worker * callers / workers,
            Self::OneAtATime(_) => self.next(0),
        }
    }

    pub fn next(&self, at: usize) -> usize {
        match self {
            Self::Each(callers) => (at + STEP) % callers,
            Self::OneAtATime(asked) => {
                let asked = asked.fetch_add(1, Ordering::Relaxed);
                usize::try_from(asked / HOT_FOR).expect("a number") % MANY
            }
        }
    }
}

pub fn api_key(number: usize) -> String {
    format!("key-{number:012}")
}

pub fn api_keys() -> Arc<[HeaderValue]> {
    let value = |number| HeaderValue::try_from(api_key(number)).expect("a header value");
    (0..MANY).map(value).collect()
}

pub fn address(number: usize) -> SocketAddr {
    let number = u32::try_from(number).expect("an IPv4 address");
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    SocketAddr::from((Ipv4Addr::from(first + number), 50_000))
}
