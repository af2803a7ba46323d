//! What became of the latest requests of callers whose pages are open, for the pictures.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{Extensions, HeaderMap, header::RETRY_AFTER},
    middleware::Next,
    response::Response,
};
use serde_json::{Value, json};
use tower_throttle::Decision;

use crate::app::App;

/// A page that did not ask for this long is closed.
const CLOSED_AFTER: Duration = Duration::from_secs(60);
const MOST_PAGES: usize = 64;
/// Enough for all marks of a picture.
const MOST_REQUESTS: usize = 128;

/// The latest requests of each caller that looks at its buckets, and of no other.
#[derive(Default)]
pub(crate) struct History(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    callers: HashMap<Caller, Page>,
    /// The number of the latest request.
    latest: u64,
}

/// A caller, as the limits of the demo see it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Key(String),
    Address(IpAddr),
    Unknown,
}

/// Writes it as the admin page reads it.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "text:{key}"),
            Self::Address(ip) => write!(f, "ip:{ip}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

struct Page {
    looked: Instant,
    requests: VecDeque<Answered>,
}

struct Answered {
    number: u64,
    at: Instant,
    shown: Value,
}

impl History {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the latest request, and the caller's requests after that number,
    /// the oldest first. From now on, those of this caller are kept.
    pub(crate) fn look(&self, caller: &Caller, after: u64) -> (u64, Vec<Value>) {
        let mut pages = self.pages();
        let latest = pages.latest;
        let now = Instant::now();
        pages
            .callers
            .retain(|_, page| now.duration_since(page.looked) < CLOSED_AFTER);
        if !pages.callers.contains_key(caller) && pages.callers.len() >= MOST_PAGES {
            let stalest = pages.callers.iter().min_by_key(|(_, page)| page.looked);
            if let Some(stalest) = stalest.map(|(caller, _)| caller.clone()) {
                pages.callers.remove(&stalest);
            }
        }
        let page = pages.callers.entry(caller.clone()).or_insert(Page {
            looked: now,
            requests: VecDeque::new(),
        });
        page.looked = now;
        let new = page.requests.iter().filter(|one| one.number > after);
        let shown = new.map(|one| {
            let mut shown = one.shown.clone();
            shown["n"] = json!(one.number);
            shown["age_ms"] = json!(one.at.elapsed().as_millis() as u64);
            shown
        });
        (latest, shown.collect())
    }

    fn record(&self, caller: &Caller, shown: Value) {
        let mut pages = self.pages();
        pages.latest += 1;
        let number = pages.latest;
        if let Some(page) = pages.callers.get_mut(caller) {
            if page.requests.len() == MOST_REQUESTS {
                page.requests.pop_front();
            }
            page.requests.push_back(Answered {
                number,
                at: Instant::now(),
                shown,
            });
        }
    }
}

pub(crate) fn caller_of(headers: &HeaderMap, extensions: &Extensions) -> Caller {
    match (headers.get("x-api-key"), peer(extensions)) {
        (Some(key), _) => Caller::Key(String::from_utf8_lossy(key.as_bytes()).into_owned()),
        (None, Some(peer)) => Caller::Address(peer.ip().to_canonical()),
        (None, None) => Caller::Unknown,
    }
}

pub(crate) fn peer(extensions: &Extensions) -> Option<SocketAddr> {
    let info = extensions.get::<ConnectInfo<SocketAddr>>();
    info.map(|ConnectInfo(peer)| *peer)
}

/// Records what became of each limited request.
pub(crate) async fn record(State(app): State<App>, request: Request, next: Next) -> Response {
    let caller = caller_of(request.headers(), request.extensions());
    let route = request.uri().path().trim_start_matches('/').to_owned();
    let response = next.run(request).await;
    if let Some(decision) = response.extensions().get::<Decision>() {
        let status = response.status().as_u16();
        let wait = response.headers().get(RETRY_AFTER);
        let wait_s = wait.and_then(|wait| wait.to_str().ok()?.parse().ok());
        app.history
            .record(&caller, shown(&route, status, wait_s, decision));
    }
    response
}

fn shown(route: &str, status: u16, wait_s: Option<u64>, decision: &Decision) -> Value {
    let denied_by: Vec<_> = decision.denied_by().map(|policy| policy.name()).collect();
    let costs = decision.policies().map(|policy| policy.cost());
    json!({
        "route": route,
        "status": status,
        "allowed": decision.is_allowed(),
        "cost": costs.max().unwrap_or_default(),
        "held_ms": decision.delay().as_millis() as u64,
        "wait_s": wait_s,
        "denied_by": denied_by,
    })
}
