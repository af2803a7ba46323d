//! What each kind of traffic sends, and when.

use std::{str::FromStr, time::Duration};

use axum::http::{HeaderValue, Method};

use super::Callers;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Off,
    /// A request now and then, mostly within the limits.
    Steady,
    /// Eight requests at once, to one route after another.
    Burst,
    /// One caller floods all routes, and each other request has a key that nobody ever had.
    Attack,
}

const MODES: [Mode; 4] = [Mode::Off, Mode::Steady, Mode::Burst, Mode::Attack];

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Steady => "steady",
            Self::Burst => "burst",
            Self::Attack => "attack",
        }
    }

    /// Returns the time between two rounds. `None`: there is no round.
    pub(super) const fn pause(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::Steady => Some(Duration::from_millis(150)),
            Self::Burst => Some(Duration::from_millis(500)),
            Self::Attack => Some(Duration::from_millis(20)),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = MODES.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| format!("no traffic {name:?}; it is off, steady, burst or attack"))
    }
}

/// A request to send.
pub(super) struct Planned {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// The API key. `None` for the address of this machine.
    pub(super) key: Option<HeaderValue>,
}

const PATHS: [(Method, &str); 12] = [
    (Method::GET, "/api/token-bucket"),
    (Method::GET, "/api/leaky-bucket"),
    (Method::GET, "/api/paced"),
    (Method::GET, "/api/fixed-window"),
    (Method::GET, "/api/sliding-window"),
    (Method::GET, "/api/sliding-log"),
    (Method::GET, "/api/concurrency?seconds=2"),
    (Method::GET, "/api/stacked"),
    (Method::POST, "/api/weighted?cost=4"),
    (Method::POST, "/api/login?password=guess"),
    (Method::POST, "/api/tokens"),
    (Method::GET, "/api/penalty?page=missing"),
];
const CALLERS: [&str; 3] = ["traffic-ann", "traffic-bob", "traffic-eve"];
const AT_ONCE: usize = 8;

/// Returns the requests of the round of this number.
pub(super) fn round(mode: Mode, callers: &Callers, number: usize) -> Vec<Planned> {
    let own = |key: &str| HeaderValue::from_str(key).ok();
    let caller = |key: &str| match callers {
        Callers::Own => own(key),
        Callers::Visitor(key) => key.clone(),
    };
    let planned = |at: usize, key| {
        let (method, path) = &PATHS[at % PATHS.len()];
        Planned {
            method: method.clone(),
            path,
            key,
        }
    };
    let regular = caller(CALLERS[number / PATHS.len() % CALLERS.len()]);
    match mode {
        Mode::Off => Vec::new(),
        Mode::Steady => vec![planned(number, regular)],
        Mode::Burst => (0..AT_ONCE)
            .map(|_| planned(number, regular.clone()))
            .collect(),
        Mode::Attack => vec![
            planned(number, caller("traffic-mallory")),
            planned(number, own(&format!("traffic-invented-{number}"))),
        ],
    }
}
